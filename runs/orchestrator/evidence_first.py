"""What stands in a run's evidence before its first model call: passages for its goal, its session's earlier runs."""

from __future__ import annotations

from agentsite.env import Environment
from runs.contracts import NewEvent, NewObservation, Outcome, RunState
from runs.orchestrator import endings
from runs.orchestrator.pauses import park, wait_s, waited_too_long
from runs.orchestrator.ports import Ports
from runs.states import On, Status
from runs.story import PRECEDENTS
from tools.arguments import PASSAGES
from tools.contracts import Json
from tools.errors import ReadFailed

POLICY, SESSION = "search_policy", PRECEDENTS[1]


def wanted(run: RunState, settings: Environment) -> bool:
    """Whether nothing was looked for yet; a run that older code admitted goes on as it began."""
    asked = _asks_policy(run, settings) or _has_session(run)
    return asked and run.status is Status.ACCEPTED and not any(o.source in (POLICY, SESSION) for o in run.observations)


def find(run: RunState, ports: Ports) -> Outcome:
    """Passages for the goal, and precedents of the session where the profile chose so; an index that is not ready
    parks the run, and is never an empty list."""
    goal, pin, started = run.contract.goal, run.contract.policy_version_pin, ports.monotonic()
    try:
        policy = ports.search(run.tenant_id, goal, pin)[:PASSAGES] if _asks_policy(run, ports.settings()) else None
    except ReadFailed as error:
        return _away(run, error, ports)
    took = round((ports.monotonic() - started) * 1000)
    found = (*_policy(policy, took), *_precedents(_session(run, ports)))
    told = NewEvent(type="evidence.found", meta={**_counted(found), "observations": len(found), "took_ms": took})
    return Outcome(on=On.EVIDENCE_FOUND, retries=0, observations=found, events=(told,))


def _counted(found: tuple[NewObservation, ...]) -> Json:
    """How many passages there are, and cases where they were looked for."""
    return {name: len(rows) for o in found for name, rows in o.content.items()}


def _away(run: RunState, error: ReadFailed, ports: Ports) -> Outcome:
    events = (NewEvent(type="tool.error", meta={"tool": POLICY, "error": error.slug}),)
    if waited_too_long(run, ports.settings()) or not error.retryable:
        return endings.escalate(run, "dependency_unavailable", events=events)
    return park(run, POLICY, wait_s(run, ports.settings(), error.retry_after_s), events=events)


def _asks_policy(run: RunState, settings: Environment) -> bool:
    """A tool that the site blocks is used by nobody, the platform included."""
    return run.contract.policy_first and POLICY not in settings.TOOLS_BLOCKED


def _policy(passages: list[Json] | None, took_ms: int) -> list[NewObservation]:
    if passages is None:
        return []
    meta = {name: passages[0][name] for name in ("doc", "version", "section")} if passages else {}
    return [NewObservation(kind="result", source=POLICY, content={"passages": passages}, meta=meta, took_ms=took_ms)]


def _has_session(run: RunState) -> bool:
    return run.contract.session_memory and run.contract.actor.session_id is not None


def _session(run: RunState, ports: Ports) -> list[Json] | None:
    actor = run.contract.actor
    if not _has_session(run) or actor.session_id is None:
        return None
    return ports.session(run.tenant_id, actor.customer_id, actor.session_id, run.run_id)


def _precedents(cases: list[Json] | None) -> list[NewObservation]:
    return [] if cases is None else [NewObservation(kind="result", source=SESSION, content={"cases": cases})]
