"""Evidence that was read long ago is read again and compared by content hash before it supports a decision (M123).

Reads through the ports alone and writes nothing. Policy is not its matter: `tools.policy.freshness` says what is in
effect; nor is what the gate or the run itself set down, which nobody can read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agentsite.canonical import sha256
from approvals import changes
from runs.contracts import NewEvent, NewObservation, PendingAction, RunState, SeenObservation
from runs.orchestrator.endings import NOT_THERE
from runs.orchestrator.ports import Ports
from runs.story import RECORDS
from tools import citations
from tools.contracts import Check, Decision, Json, ReadCall, ReadResult
from tools.errors import AccessRefused, ReadFailed, UpstreamUnavailable

CHANGED = "evidence_changed"
"""The rule of a write whose evidence is not true any more."""
COMPARED = "evidence.compared"
CALL = "again:"
"""Calls of ours carry the observation's id behind this; no model's call is named so."""
READ_AGAIN = "read_again"
_PARTS = {"get_order": "order", "get_payments": "payments", "get_refund_status": "refunds"}


@dataclass(frozen=True, kw_only=True)
class Again:
    """A cited observation and the same read now; `age_s` is how old it was."""

    seen: SeenObservation
    now: ReadResult
    age_s: int

    @property
    def changed(self) -> bool:
        return not self.now.ok or sha256(self.now.content) != self.seen.content_hash

    def sways(self, shown: Iterable[Json]) -> bool:
        """Whether it changed in what a person decides by, other than as he was shown before he said yes.

        By the fields of the review page: a note is none of them.
        """
        if not self.now.ok:
            return True
        known = {(one.get("what"), one.get("new")) for one in shown}
        moved = changes.moved(_facts(self.seen.source, self.seen.content), _facts(self.seen.source, self.now.content))
        return self.changed and any((one.what, one.new) not in known for one in moved)


Found = tuple[Again, ...]


def compare(run: RunState, pending: PendingAction, ports: Ports) -> Found:
    """What the action cites of live reads that is older than EVIDENCE_FRESH_S, each read again.

    Raises ReadFailed where one could not be read: nothing is decided on what may not be true any more.
    """
    oldest_s = ports.settings().EVIDENCE_FRESH_S
    old = [(o, age) for o in _cited(run, pending) if (age := (run.now - o.fetched_at).total_seconds()) > oldest_s]
    if not old:
        return ()
    calls = tuple(ReadCall(call_id=f"{CALL}{o.obs_id}", tool=o.source, args=o.args) for o, _ in old)
    ports.leave_database()
    results = ports.run_reads(run.scope(), ports.backend_of(run.tenant_id, run.agent), calls, {})
    for result in results:
        _answered(result)
    return tuple(Again(seen=o, now=r, age_s=int(age)) for (o, age), r in zip(old, results, strict=True))


def _cited(run: RunState, pending: PendingAction) -> list[SeenObservation]:
    """In the order they were observed, each once: results of live reads, a model's or ours."""
    ids = {citations.split(cited)[0] for cited in pending.evidence} | set(pending.evidence)
    return [
        o for o in run.observations
        if o.obs_id in ids and o.ok and not o.erased and o.source in RECORDS and (o.call_id or READ_AGAIN in o.meta)
    ]  # fmt: skip


def _answered(result: ReadResult) -> None:
    """Raises where a read says nothing of the thing it was about; that it is not there any more is an answer."""
    slug = _slug(result)
    if result.ok or slug in NOT_THERE:
        return
    if slug == AccessRefused.slug:
        raise AccessRefused
    raise UpstreamUnavailable(slug=slug, retry_after_s=result.retry_in_s)


def _slug(result: ReadResult) -> str:
    told = result.content.get("error") if isinstance(result.content, dict) and not result.ok else None
    return str(told or ReadFailed.slug)


def _facts(source: str, content: Json) -> Json:
    """A read's content as the part of an order's facts that it is."""
    part = _PARTS[source]
    return {part: content if part == "order" else content.get(part)}


# --- what follows from it ---------------------------------------------------------------------------------------


def judged(decision: Decision, found: Found) -> Decision:
    """The gate's decision with this check beside the others; denied where anything cited is not the same any more."""
    if not found:
        return decision
    same = not any(one.changed for one in found)
    checks = (*decision.checks, _check(found, ok=same))
    if same:
        return replace(decision, checks=checks)
    return replace(decision, kind="deny", rule=CHANGED, checks=checks, required=0, large=False, escalate=None)


def _check(found: Found, *, ok: bool) -> Check:
    return Check(name="evidence_fresh", ok=ok, inputs=_told(found))


def _told(found: Found) -> Json:
    told = {READ_AGAIN: [one.seen.obs_id for one in found], "ages_s": [one.age_s for one in found]}
    changed = [one.seen.obs_id for one in found if one.changed]
    return told | ({"changed": changed} if changed else {})


def denied(found: Found) -> Decision:
    """At a release: what was decided on is not true any more."""
    return Decision(kind="deny", rule=CHANGED, checks=(_check(found, ok=False),))


def event(found: Found) -> tuple[NewEvent, ...]:
    """For a release, which leaves no decision: what was read again, and what of it changed in words alone."""
    return (NewEvent(type=COMPARED, meta=_told(found)),) if found else ()


def notes(pending: PendingAction, found: Found) -> tuple[NewObservation, ...]:
    """The denial as the model sees it, which is no mistake of its own, then what is true now."""
    content = {"error": "denied", "rule": CHANGED, "retryable": True, "numbers": _told(found)}
    note = NewObservation(
        kind="denial", source=pending.tool, content=content, call_id=pending.call_id, args=pending.args
    )
    return (note, *(_observed(one) for one in found if one.changed))


def _observed(one: Again) -> NewObservation:
    return NewObservation(
        kind="result" if one.now.ok else "error", source=one.seen.source, content=one.now.content, args=one.seen.args,
        meta={READ_AGAIN: one.seen.obs_id}, fetched_at=one.now.fetched_at, took_ms=one.now.took_ms,
    )  # fmt: skip
