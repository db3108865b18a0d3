"""What ids among a proposal's evidence name, and whether that proves anything by the registry's word (M9, M89)."""

from __future__ import annotations

from typing import Any

import pytest

from tools import citations
from tools.contracts import EvidenceItem, PassageRef, PolicyState

pytestmark = pytest.mark.any_database


def ref(doc: str = "POL-REF-004", version: int = 4, text: str = "a", *, current: bool = True) -> PassageRef:
    return PassageRef(doc=doc, version=version, content_hash=f"sha256:{text}", current=current)


def found(obs_id: str, *passages: PassageRef, **changes: Any) -> EvidenceItem:
    first = passages[0] if passages else None
    values: dict[str, Any] = {
        "obs_id": obs_id, "tool": "search_policy", "kind": "result", "ok": True, "passages": passages,
        "doc": first.doc if first else None, "version": first.version if first else None,
    }  # fmt: skip
    return EvidenceItem(**(values | changes))


PAYMENTS = EvidenceItem(obs_id="obs_1", tool="get_payments", kind="result", ok=True, order_id="8472")
BOTH = found("obs_3", ref(text="a"), ref("POL-SHIP-001", 2, "b"))
OLD = found("obs_4", ref(version=3, current=False))
CASE = EvidenceItem(obs_id="obs_5", tool="search_cases", kind="result", ok=True, precedent=True)
ALL = (PAYMENTS, BOTH, OLD)
NOW = PolicyState(doc="POL-REF-004", pinned=4, current=4)


def failed(*cited: str, evidence: tuple[EvidenceItem, ...] = ALL, policy: PolicyState = NOW) -> list[str]:
    return [check.name for check in citations.checks(cited, evidence, policy, "8472") if not check.ok]


def stale(*cited: str, evidence: tuple[EvidenceItem, ...] = ALL, policy: PolicyState = NOW) -> dict[str, Any]:
    return next(c.inputs for c in citations.checks(cited, evidence, policy, "8472") if c.name == "policy_stale")


@pytest.mark.parametrize(
    ("cited", "expected"),
    [
        ("obs_3", ("obs_3", None)), ("obs_3.2", ("obs_3", 2)), ("obs_3.12", ("obs_3", 12)),
        ("obs_3.0", ("obs_3.0", None)),
        ("obs_3.01", ("obs_3.01", None)), ("obs_3.", ("obs_3.", None)), (".2", (".2", None)), ("", ("", None)),
        ("obs_3.2.1", ("obs_3.2", 1)), ("obs_3.1000", ("obs_3.1000", None)), ("obs_3.٢", ("obs_3.٢", None)),
        ("obs_3.-1", ("obs_3.-1", None)), ("obs_3.2 ", ("obs_3.2 ", None)),
    ],
)  # fmt: skip
def test_an_id_names_an_observation_or_one_passage_of_it(cited: str, expected: tuple[str, int | None]) -> None:
    assert citations.split(cited) == expected


def test_one_passage_is_that_one_alone() -> None:
    one = citations.named(ALL, "obs_3.2")
    assert one is not None
    assert (one.obs_id, one.doc, one.version, one.passages) == ("obs_3.2", "POL-SHIP-001", 2, (BOTH.passages[1],))
    assert citations.named(ALL, "obs_3") == BOTH


@pytest.mark.parametrize("cited", ["obs_3.3", "obs_1.1", "obs_9", "obs_9.1", "obs_3.0", "obs_3.1.1", "OBS_3"])
def test_what_is_not_there_is_unknown_evidence(cited: str) -> None:
    assert citations.named(ALL, cited) is None
    assert failed(cited) == ["unknown_evidence"]


def test_an_id_with_a_point_of_its_own_is_that_observation() -> None:
    odd = found("obs_3.2", ref(text="z"))
    assert citations.named((*ALL, odd), "obs_3.2") == odd


def test_nothing_cited_is_missing_evidence() -> None:
    assert failed(evidence=(PAYMENTS,)) == ["evidence_missing"]


@pytest.mark.parametrize(
    ("cited", "gone", "expected"),
    [
        (("obs_1", "obs_3"), (), []), (("obs_3.1",), (), []), (("obs_1",), (), []),
        (("obs_4",), (), ["obs_4"]), (("obs_3", "obs_4"), (), ["obs_4"]), (("obs_3.1", "obs_4.1"), (), ["obs_4.1"]),
        (("obs_3",), (ref("POL-SHIP-001", 2, "b"),), ["obs_3"]), (("obs_3.1",), (ref("POL-SHIP-001", 2, "b"),), []),
        (("obs_3.2", "obs_3.1"), (ref("POL-SHIP-001", 2, "b"),), ["obs_3.2"]),
        # none is cited: something that was found must be in effect
        (("obs_1",), (ref(text="a"),), []), (("obs_1",),
        (ref(text="a"), ref("POL-SHIP-001", 2, "b")), ["obs_3", "obs_4"]),
    ],
)  # fmt: skip
def test_every_cited_passage_is_in_effect_now(
    cited: tuple[str, ...], gone: tuple[PassageRef, ...], expected: list[str]
) -> None:
    policy = PolicyState(doc="POL-REF-004", pinned=4, current=4, superseded=frozenset(p.name for p in gone))
    assert failed(*cited, policy=policy) == (["policy_stale"] if expected else [])
    assert stale(*cited, policy=policy)["stale_cited"] == expected


def test_two_versions_of_one_text_are_two_passages() -> None:
    """Version 3 held the same clause, word for word: citing it is citing version 3."""
    same = found("obs_6", ref(version=3, text="a"))
    policy = PolicyState(doc="POL-REF-004", pinned=4, current=4, superseded=frozenset({same.passages[0].name}))
    assert failed("obs_6", "obs_3", evidence=(*ALL, same), policy=policy) == ["policy_stale"]
    assert failed("obs_3", evidence=(*ALL, same), policy=policy) == []


def test_what_was_superseded_is_recorded_only_where_it_decided() -> None:
    gone = ref("POL-SHIP-001", 2, "b")
    policy = PolicyState(doc="POL-REF-004", pinned=4, current=4, superseded=frozenset({gone.name, "another"}))
    assert stale("obs_3", policy=policy)["superseded"] == [gone.name]
    assert "superseded" not in stale("obs_3.1", policy=policy)


@pytest.mark.parametrize("current", [None, 3, 5])
def test_a_pinned_version_that_is_not_in_effect_supports_nothing(current: int | None) -> None:
    policy = PolicyState(doc="POL-REF-004", pinned=4, current=current)
    assert failed("obs_3", policy=policy) == failed("obs_1", evidence=(PAYMENTS,), policy=policy) == ["policy_stale"]


def test_a_precedent_proves_nothing() -> None:
    evidence = (*ALL, CASE)
    assert failed("obs_3", "obs_5", evidence=evidence) == ["precedent_is_no_evidence"]
    assert failed("obs_3", "obs_1", evidence=evidence) == []
    names = [check.name for check in citations.checks(("obs_1",), ALL, NOW, "8472")]
    assert names == ["evidence_missing", "unknown_evidence", "policy_stale"]


def test_what_an_older_release_recorded_goes_by_its_first_passage() -> None:
    old = found("obs_7", doc="POL-REF-004", version=3)
    new = found("obs_8", doc="POL-REF-004", version=4)
    assert failed("obs_7", "obs_8", evidence=(PAYMENTS, old, new)) == ["policy_stale"]
    assert failed("obs_8", evidence=(PAYMENTS, old, new)) == []
    assert failed("obs_8.1", evidence=(PAYMENTS, old, new)) == ["unknown_evidence"]


def test_write_to_an_order_of_which_nothing_was_read_rests_on_nothing() -> None:
    refused = [c for c in citations.checks(("obs_1",), ALL, NOW, "9000") if not c.ok]
    assert [(c.name, c.inputs) for c in refused] == [("order_not_read", {"order_id": "9000"})]
