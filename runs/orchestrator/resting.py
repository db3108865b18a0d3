"""Whether the policy that a run rests on is still in effect, by the registry now; and what a reply quotes of it.

Reads the registry through the ports alone; writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runs import clauses, languages
from runs.clauses import Quoted
from runs.contracts import Final, NewObservation, RunState, SeenObservation
from runs.orchestrator.ports import Ports
from runs.story import RECORDS
from tools import citations
from tools.contracts import PassageRef, PolicyState

Seen = SeenObservation | NewObservation


@dataclass(frozen=True, kw_only=True)
class Rests:
    """`stale`: the run was shown policy, and the version it is pinned to is not in effect."""

    stale: bool = False
    quoted: Quoted = clauses.NOTHING


def of_draft(run: RunState, final: Final, ports: Ports) -> Rests:
    """What a draft of the reply rests on. The passages that it cites by themselves are quoted; where it cites none,
    as a draft without any evidence field must, those that the run's confirmed refunds were proposed on."""
    rows = clauses.cited(run.observations, final.evidence) or clauses.cited(run.observations, _proposed_on(run))
    if not rows and not _has_policy(run.observations):
        return Rests()
    state = _asked(run, ports, rows=clauses.refs(rows.values()))
    language = languages.of_customer(run.contract.goal, run.observations)
    return Rests(stale=_gone(state), quoted=clauses.quote(rows, state.superseded, language))


def abstains(run: RunState, found: Sequence[NewObservation], ports: Ports) -> bool:
    """Whether nothing is left to do but to tell the facts: the pinned version is not in effect, and these are read."""
    seen: list[Seen] = [*run.observations, *found]
    return _has_policy(seen) and _facts_read(run, seen) and _gone(_asked(run, ports))


def _asked(run: RunState, ports: Ports, rows: tuple[PassageRef, ...] = ()) -> PolicyState:
    return ports.policy_state(run.tenant_id, run.contract.policy_version_pin, rows)


def _gone(state: PolicyState) -> bool:
    return state.current != state.pinned


def _proposed_on(run: RunState) -> list[str]:
    made = {w.call_id for w in run.confirmed}
    return [cited for turn in run.turns for p in turn.proposals if p.call_id in made for cited in p.evidence]


def _has_policy(seen: Iterable[Seen]) -> bool:
    return any(o.source == citations.POLICY and o.kind == "result" for o in seen)


def _facts_read(run: RunState, seen: Sequence[Seen]) -> bool:
    """Whether each record that this run may read of each order it is about was read: there is no more to tell."""
    scope = run.contract.scope
    good = {(o.source, str(o.args.get("order_id"))) for o in seen if o.source in RECORDS and o.kind == "result"}
    orders = scope.order_ids or sorted({order_id for source, order_id in good if source == "get_order"})
    wanted = [name for name in RECORDS if name in scope.read_tools]
    return bool(orders) and all((name, order_id) in good for name in wanted for order_id in orders)
