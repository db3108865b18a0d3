"""What handlers may ask of the world, as one value: a model, the business system, our other rows, settings, time.

Handlers get it as a parameter and reach the world by nothing else; `LIVE` is the real one. Whoever replays a recorded
run hands them the record instead, so that the same handlers run with no model, no tool and no database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentsite import clock, env
from agentsite.tenants import shadowing, switches
from runs import backends, store
from runs.contracts import LLMTurnResult, ModelCall
from runs.orchestrator import at_gate, calling
from runs.orchestrator.at_gate import Asked, Told
from runs.orchestrator.outside import without_connection
from runs.store import cases
from tools import dispatcher, gate
from tools.arguments import MOST_PASSAGES
from tools.contracts import (
    Backend,
    Json,
    OwnWrite,
    PassageRef,
    PolicyState,
    ReadCall,
    ReadFacts,
    ReadResult,
    Refund,
    Release,
    Scope,
    Searches,
    SentMark,
    WriteAnswer,
)
from tools.policy import freshness, search


def _runs_on(_tenant_id: str) -> float | None:
    return None


def _goes_on() -> bool:
    return False


def _never(_tenant_id: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Each field is a call; what it raises is what the module behind it raises. Times are seconds."""

    settings: Callable[[], env.Environment]
    monotonic: Callable[[], float]
    leave_database: Callable[[], None]

    complete: Callable[[ModelCall], LLMTurnResult]
    backend_of: Callable[[str, str], Backend]
    """(tenant, agent)"""
    run_reads: Callable[[Scope, Backend, tuple[ReadCall, ...], Searches], tuple[ReadResult, ...]]
    look_up: Callable[[Backend, str, str], tuple[Refund, ...]]
    """(backend, order, trace)"""
    read_facts: ReadFacts
    can_write: Callable[[Release, Backend], bool]
    run_write: Callable[[Release, SentMark, Backend], WriteAnswer]

    search: Callable[[str, str, str], list[Json]]
    """(tenant, query, pin) to passages; raises tools.errors.IndexBuilding"""
    cases: Callable[[str, str, str, str], list[Json]]
    """(tenant, customer, run that asks, query) to precedents"""
    session: Callable[[str, str, str, str], list[Json]]
    """(tenant, customer, session, run that asks) to the session's earlier runs, as precedents"""
    policy_state: Callable[[str, str, tuple[PassageRef, ...]], PolicyState]
    """(tenant, pin, passages that a reply rests on); what a write rests on is told at the gate"""
    own_writes: Callable[[str, str], tuple[OwnWrite, ...]]
    """(tenant, order)"""
    at_gate: Callable[[Asked], Told]
    held_s: Callable[[str], float | None] = _runs_on
    """Seconds to hold a turn's first model call back while the site's stop switch is thrown; None: it is not at this
    very moment (M119)"""
    stopped: Callable[[], bool] = _goes_on
    """Whether the site's stop switch is thrown at this very moment: asked before each further call of a turn (M119)"""
    in_shadow: Callable[[str], bool] = _never
    """Whether a tenant is in shadow mode at this moment (M110)"""


def _search(tenant_id: str, query: str, pin: str) -> list[Json]:
    return [p.wire() for p in search.search(tenant_id, query, pin=pin, limit=MOST_PASSAGES)]


def _run_reads(scope: Scope, backend: Backend, calls: tuple[ReadCall, ...], found: Searches) -> tuple[ReadResult, ...]:
    def cancelled() -> bool:
        asked = store.cancel_asked(scope.run_id)
        without_connection()
        return asked

    return dispatcher.run_reads(scope, backend, calls, found, cancelled=cancelled)


def _policy_state(tenant_id: str, pin: str, rests_on: tuple[PassageRef, ...]) -> PolicyState:
    return freshness.policy_state(tenant_id, pin, rests_on) if rests_on else freshness.lately(tenant_id, pin)


LIVE = Ports(
    settings=env.read, monotonic=clock.monotonic, leave_database=without_connection, complete=calling.complete,
    backend_of=backends.backend_of, run_reads=_run_reads,
    look_up=dispatcher.look_up, read_facts=gate.read_live, can_write=dispatcher.can_write,
    run_write=dispatcher.run_write, search=_search, cases=cases.like, session=cases.of_session,
    policy_state=_policy_state, own_writes=store.own_writes, at_gate=at_gate.ask,
    held_s=switches.model_hold_s, stopped=switches.site_stopped, in_shadow=shadowing.stands,
)  # fmt: skip
