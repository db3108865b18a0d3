"""What a proposal rests on: which evidence its ids name, and whether that proves anything now. A paper: no zone.

`obs_3` is a whole observation; `obs_3.2` the second passage of what it found, and nothing else of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tools.contracts import Check, EvidenceItem, Json, PolicyState

POLICY = "search_policy"
_ONE = re.compile(r"(.+)\.([1-9][0-9]{0,2})", re.ASCII)


def split(cited: str) -> tuple[str, int | None]:
    """The observation's id and the passage's number, counted from 1; None: the whole observation."""
    one = _ONE.fullmatch(cited)
    return (one[1], int(one[2])) if one else (cited, None)


def named(items: Iterable[EvidenceItem], cited: str) -> EvidenceItem | None:
    """What the id names, under the id itself; of one passage, that one alone. None: there is no such thing."""
    obs_id, number = split(cited)
    known = {item.obs_id: item for item in items}
    if cited in known or number is None:
        return known.get(cited)
    found = known.get(obs_id)
    if found is None or number > len(found.passages):
        return None
    one = found.passages[number - 1]
    return replace(found, obs_id=cited, doc=one.doc, version=one.version, section=None, passages=(one,))


# A check's name, where it fails, is the denial's reason; the first that fails decides.


def checks(
    cited: Sequence[str], evidence: Sequence[EvidenceItem], policy: PolicyState, order_id: str
) -> Iterable[Check]:
    """The gate's checks of what is cited, against the registry's word of this moment. While the run has read no record
    of the order, nothing supports a write to it: policy alone says nothing of it."""
    by_id = {obs: named(evidence, obs) for obs in cited}
    rests_on = [item for item in by_id.values() if item is not None and item.ok]
    yield Check(name="evidence_missing", ok=bool(cited), inputs={"cited": list(cited)})
    unknown = [obs for obs, item in by_id.items() if item is None or not item.ok]
    yield Check(name="unknown_evidence", ok=not unknown, inputs={"unknown": unknown})
    if not any(item.ok and item.order_id == order_id for item in evidence):
        yield Check(name="order_not_read", ok=False, inputs={"order_id": order_id})
    if any(item.precedent for item in evidence):
        others = [item.obs_id for item in rests_on if item.precedent]
        yield Check(name="precedent_is_no_evidence", ok=not others, inputs={"precedents": others})
    yield _policy(policy, _policies(rests_on), _policies(evidence))


def _policies(items: Sequence[EvidenceItem]) -> list[EvidenceItem]:
    return [item for item in items if item.tool == POLICY and item.ok and (item.passages or item.doc)]


def _policy(policy: PolicyState, cited: list[EvidenceItem], found: list[EvidenceItem]) -> Check:
    """The pinned version is the one in effect, and so is every passage that this rests on (M9)."""
    stale = _stale(policy, cited, found)
    inputs: Json = {
        "pinned": policy.pinned, "registry_current": policy.current, "doc": policy.doc,
        "stale_cited": [item.obs_id for item in stale],
    }  # fmt: skip
    if gone := sorted({p.name for item in stale for p in item.passages} & policy.superseded):
        inputs["superseded"] = gone
    return Check(name="policy_stale", ok=policy.current == policy.pinned and not stale, inputs=inputs)


def _stale(policy: PolicyState, cited: list[EvidenceItem], found: list[EvidenceItem]) -> list[EvidenceItem]:
    """What is cited of a version that is not in effect, though a current one be cited beside it; where no policy is
    cited, all that was found, unless something of it is in effect."""
    if cited:
        return [item for item in cited if not all(_standing(policy, item))]
    return [] if any(any(_standing(policy, item)) for item in found) else found


def _standing(policy: PolicyState, item: EvidenceItem) -> list[bool]:
    """Of each passage whether it was shown as current and is so by the registry now.

    An older release recorded no passages: there the first one's document and version stand for all.
    """
    if not item.passages:
        return [item.doc != policy.doc or item.version == policy.pinned]
    return [p.current and p.name not in policy.superseded for p in item.passages]
