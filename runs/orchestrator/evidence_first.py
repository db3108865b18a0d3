"""What stands in a run's evidence before its first model call: passages for its goal, its session's earlier runs."""

from __future__ import annotations

from runs.contracts import NewEvent, NewObservation, Outcome, RunState
from runs.evidence import PRECEDENTS
from runs.orchestrator import endings
from runs.orchestrator.pauses import park, wait_s, waited_too_long
from runs.orchestrator.ports import Ports
from runs.states import On, Status
from tools.arguments import PASSAGES
from tools.contracts import Json
from tools.errors import ReadFailed

POLICY, SESSION = "search_policy", PRECEDENTS[1]


def wanted(run: RunState) -> bool:
    """Whether nothing was looked for yet; a run that older code admitted goes on as it began."""
    asked = run.contract.policy_first or _has_session(run)
    return asked and run.status is Status.ACCEPTED and not any(o.source in (POLICY, SESSION) for o in run.observations)


def find(run: RunState, ports: Ports) -> Outcome:
    """Passages for the goal, and precedents of the session where the profile chose so; an index that is not ready
    parks the run, and is never an empty list."""
    goal, pin = run.contract.goal, run.contract.policy_version_pin
    try:
        passages = ports.search(run.tenant_id, goal, pin)[:PASSAGES] if run.contract.policy_first else None
    except ReadFailed as error:
        if waited_too_long(run, ports.settings()):
            return endings.escalate(run, "dependency_unavailable")
        return park(run, POLICY, wait_s(run, ports.settings(), error.retry_after_s))
    found = [*_policy(passages), *_session(run, ports)]
    meta = {"passages": len(passages or ()), "observations": len(found)}
    return Outcome(
        on=On.EVIDENCE_FOUND, retries=0, observations=tuple(found), events=(NewEvent(type="evidence.found", meta=meta),)
    )


def _policy(passages: list[Json] | None) -> list[NewObservation]:
    if passages is None:
        return []
    meta = {name: passages[0][name] for name in ("doc", "version", "section")} if passages else {}
    return [NewObservation(kind="result", source=POLICY, content={"passages": passages}, meta=meta)]


def _has_session(run: RunState) -> bool:
    return run.contract.session_memory and run.contract.actor.session_id is not None


def _session(run: RunState, ports: Ports) -> list[NewObservation]:
    actor = run.contract.actor
    if not _has_session(run) or actor.session_id is None:
        return []
    earlier = ports.session(run.tenant_id, actor.customer_id, actor.session_id, run.run_id)
    return [NewObservation(kind="result", source=SESSION, content={"cases": earlier})]
