"""The world of one replayed step: ports that answer from the record. No model, no tool, no row, no clock is reached.

What the record holds no answer to raises NotRecorded: today's code then asks for something it did not ask for then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property

from agentsite import env
from agentsite.prices import PriceTable
from runs.contracts import LLMTurnResult, ModelCall, RunState, SeenWrite
from runs.errors import ContextTooLong, ModelError, ModelInterrupted, ModelRefused, ModelUnavailable
from runs.inference.dialects import recall
from runs.orchestrator import Ports, fresh, shadowing
from runs.orchestrator.at_gate import Asked, Told
from runs.replay import facts
from runs.replay.memory import Chance
from runs.replay.record import Happened, Recorded, Step
from runs.states import Status
from runs.store import OrderStanding
from tools.contracts import (
    Backend,
    Json,
    OrderFacts,
    OwnWrite,
    PassageRef,
    PolicyState,
    ReadCall,
    ReadResult,
    Refund,
    Release,
    Scope,
    Searches,
    SentMark,
    UsedSoFar,
    WriteAnswer,
)
from tools.errors import (
    AccessRefused,
    BadAnswer,
    IndexBuilding,
    NotFound,
    OutcomeUnknown,
    ReadFailed,
    Refused,
    UpstreamUnavailable,
)

READ_ERRORS = {e.slug: e for e in (UpstreamUnavailable, BadAnswer, AccessRefused, NotFound, IndexBuilding)}
# What a look-up that did answer leads to; any other slug of a doubt is that of a read that failed.
LOOKED = frozenset({"absent_once", "not_listed_yet", "no_promise", "other_backend", "ambiguous"})
# Errors of a model call that a handler treats apart, whatever the run then did.
OF_THEIR_OWN: dict[str, type[ModelError]] = {"context_too_long": ContextTooLong, "interrupted": ModelInterrupted}
# `storable` wrote characters beyond the first plane out in a form that is Python's, not JSON's.
# A release that did not record this compared no evidence.
NEVER_OLD: Json = {"EVIDENCE_FRESH_S": float("inf")}
# A handler looks at how old its evidence is when it begins; its record says when it was through.
YOUNG_S = 60.0
_LONG_ESCAPE = re.compile(r"(?<!\\)\\U([0-9a-f]{8})")


class NotRecorded(Exception):
    """The record has no answer to what a handler of today asks; the words name it."""


def read_error(slug: str) -> ReadFailed:
    return READ_ERRORS.get(slug, UpstreamUnavailable)(slug=slug)


@dataclass(frozen=True, kw_only=True)
class _Investigation:
    """What one step of a record can answer about settings, the model and reads; `asked` is what it asked its model."""

    record: Recorded
    step: Step
    run: RunState
    chance: Chance
    asked: list[ModelCall] = field(default_factory=list)

    # --- settings ---

    @cached_property
    def settings(self) -> env.Environment:
        tried = [e.meta["route"] for e in self.step.events if e.type in ("model.called", "route.passed_over")]
        routes = list(dict.fromkeys(tried)) or ["offline:not-recorded"]
        known = {**NEVER_OLD, **self.record.settings}
        if self.chance.young:
            known["EVIDENCE_FRESH_S"] += YOUNG_S
        if known.get("MODEL_PRICES") is not None:
            known["MODEL_PRICES"] = PriceTable.model_validate(known["MODEL_PRICES"])
        return env.read().model_copy(update={**known, "AGENT_MODELS": routes})

    def _backend(self, tenant_id: str, agent: str) -> Backend:
        known, write = self.record.backend, self.run.open_write
        url = write.origin if write else known["url"]
        if self.step.slug("write.unknown") == "other_backend":
            url = f"not {url}"
        return Backend(
            tenant_id=tenant_id, url=url, read_token_env="", write_token_env="", honours_keys=known["honours_keys"],
            key_life_s=known["key_life_s"], settle_s=known["settle_s"],
        )  # fmt: skip

    # --- the model ---

    @cached_property
    def _routes_called(self) -> tuple[Happened, ...]:
        return tuple(e for e in self.step.events if e.type == "model.called")

    def _complete(self, called: Happened | None, call: ModelCall) -> LLMTurnResult:
        if called is None:
            raise NotRecorded("a model turn")
        self.asked.append(call)
        failed = next((e for e in self.step.events if e.type == "model.failed" and e.seq == called.seq + 1), None)
        if failed is not None:
            raise self._model_error(failed.meta)
        turn = self.record.turns.get(self.run.model_calls + 1)
        if turn is None:
            raise NotRecorded("a model turn")
        raw = _LONG_ESCAPE.sub(lambda m: chr(int(m.group(1), 16)), turn["raw"])
        return replace(
            recall(call.route, raw), model=turn["model"], finish_reason=turn["finish_reason"],
            input_tokens=turn["input_tokens"], output_tokens=turn["output_tokens"],
        )  # fmt: skip

    def _model_error(self, meta: Json) -> ModelError:
        slug = meta["error"]
        kind = OF_THEIR_OWN.get(slug) or (ModelRefused if self.chance.final else ModelUnavailable)
        error = kind(slug)
        error.after(meta.get("input_tokens", 0), meta.get("output_tokens", 0))
        return error

    # --- reads ---

    def _run_reads(
        self, scope: Scope, backend: Backend, calls: tuple[ReadCall, ...], searches: Searches
    ) -> tuple[ReadResult, ...]:
        return tuple(
            self._once_more(call) if call.call_id.startswith(fresh.CALL) else self._result(call) for call in calls
        )

    def _once_more(self, call: ReadCall) -> ReadResult:
        """Evidence that was read again: as it was observed anew; else the same, or other in words that nobody kept."""
        obs_id = call.call_id.removeprefix(fresh.CALL)
        told = facts.compared(self.step)
        if obs_id not in told.get(fresh.READ_AGAIN, ()):
            raise NotRecorded(f"{call.tool} once more ({obs_id})")
        known = next(o for o in self.run.observations if o.obs_id == obs_id)
        later = self.record.observations[len(self.run.observations) :]
        found = next((o for o in later if o.meta.get(fresh.READ_AGAIN) == obs_id), None)
        content = known.content
        if obs_id in told.get("changed", ()):
            content = found.content if found is not None else {**content, "not kept": "other words"}
        return ReadResult(
            call_id=call.call_id, tool=call.tool, args=call.args, ok=found is None or found.ok, content=content,
            fetched_at=found.fetched_at if found is not None else self.step.at, took_ms=0,
        )  # fmt: skip

    def _result(self, call: ReadCall) -> ReadResult:
        told = next((e for e in self.step.events if e.type in ("tool.observed", "tool.error")
                     and e.meta.get("call") == call.call_id), None)  # fmt: skip
        if told is None:
            raise NotRecorded(f"{call.tool} ({call.call_id})")
        seen = self.record.result_of(call.call_id)
        ok = told.type == "tool.observed"
        if seen is None or (seen.kind == "result") is not ok:
            # An outage leaves no result of the call: it stays unanswered and is made again.
            failed = {"error": told.meta.get("error"), "retryable": True, "tool": call.tool}
            return _read(call, told, ok=False, content=self._first_words(call, failed))
        return ReadResult(
            call_id=call.call_id, tool=call.tool, args=call.args, ok=ok, content=seen.content, meta=seen.meta,
            fetched_at=seen.fetched_at, took_ms=told.meta["took_ms"],
            retryable=not ok and bool(seen.content.get("retryable")),
        )  # fmt: skip

    def _first_words(self, call: ReadCall, failed: Json) -> Json:
        """What an outage's first observation said of this call, which only the first one leaves."""
        for seen in self.record.observations[len(self.run.observations) :]:
            if seen.kind == "error" and seen.source == call.tool and not seen.call_id:
                content: Json = seen.content
                return content
        return failed

    # --- what was found before the first turn; searches that the model asks for are reads ---

    def _search(self, tenant_id: str, query: str, pin: str) -> list[Json]:
        failed = self.step.first("tool.error")
        if failed is not None and failed.meta["tool"] == "search_policy":
            raise read_error(failed.meta["error"])
        return self._first("search_policy", "passages")

    def _session(self, tenant_id: str, customer_id: str, session_id: str, run_id: str) -> list[Json]:
        return self._first("session_history", "cases")

    def _first(self, source: str, name: str) -> list[Json]:
        told = self.step.first("evidence.found")
        begun = len(self.run.observations)
        new = self.record.observations[begun : begun + told.meta["observations"]] if told is not None else ()
        found = next((o for o in new if o.source == source), None)
        if found is None:
            raise NotRecorded(f"{name} before the first turn")
        rows: list[Json] = found.content[name]
        return rows

    def _cases(self, tenant_id: str, customer_id: str, run_id: str, query: str) -> list[Json]:
        raise NotRecorded("earlier cases")


@dataclass(frozen=True, kw_only=True)
class World(_Investigation):
    """What one step of a record can answer, writes and the gate's facts included."""

    def ports(self) -> Ports:
        asked = iter(self._routes_called)
        return Ports(
            settings=lambda: self.settings, monotonic=lambda: 0.0, leave_database=lambda: None,
            complete=lambda call: self._complete(next(asked, None), call),
            backend_of=self._backend, run_reads=self._run_reads,
            look_up=self._look_up, read_facts=self._read_facts, can_write=lambda _release, _backend: True,
            run_write=self._run_write, search=self._search, cases=self._cases, session=self._session,
            policy_state=self._policy,
            own_writes=lambda _tenant, order: facts.own_of(self.run, order),
            at_gate=self._at_gate, in_shadow=lambda _tenant: self.step.reason == shadowing.REASON,
        )  # fmt: skip

    @cached_property
    def _decided(self) -> Happened | None:
        return self.step.first("gate.decided")

    def _at_gate(self, asked: Asked) -> Told:
        unqualified = self._decided is not None and facts.ok(self._decided, "route_not_qualified") is False
        return Told(
            books=OrderStanding(epoch=0, own=facts.own_of(self.run, asked.order_id), used=self._used()),
            policy=self._policy(asked.tenant_id, asked.pin, asked.rests_on),
            qualification=None if unqualified else 1,
        )

    def _policy(self, tenant_id: str, pin: str, rests_on: tuple[PassageRef, ...]) -> PolicyState:
        sent, stale = self.step.first("reply.sent"), self.step.reason == "policy_stale"
        return facts.policy_of(self._decided, sent, pin, stale=stale)

    def _used(self) -> UsedSoFar:
        used = facts.used_of(self._decided or self._earlier())
        held = self.step.first("notice")
        if held is not None and held.meta.get("held") == "tenant_hour_total":
            return UsedSoFar(agent_on_order_minor=used.agent_on_order_minor, tenant_hour=(10**9, 10**15))
        return used

    def _read_facts(
        self, backend: Backend, order_id: str, trace_id: str, own: tuple[OwnWrite, ...], epoch: int
    ) -> OrderFacts:
        if self.run.status is Status.EXECUTED:
            return self._verified(own)
        if (failed := self.step.first("tool.error")) is not None and failed.meta["tool"] == "gate":
            raise read_error(failed.meta["error"])
        leave_out = self.run.open_write.key if self.run.open_write else ""
        if self._decided is not None and (self._decided.payload or {})["facts"]:
            return facts.of_decision(self._decided, own, leave_out)
        if self._decided is not None and self._decided.meta["rule"] == "order_not_found":
            raise NotFound
        earlier = self._earlier()
        if earlier is None:
            raise NotRecorded("live facts")
        found = facts.of_decision(earlier, own, leave_out)
        return facts.nothing_left(found) if self.chance.withheld else found

    def _earlier(self) -> Happened | None:
        """The last decision on the same action that read facts; a release that went through keeps none of its own."""
        pending = self.run.pending
        hashes = {pending.action_hash} if pending else {w.action_hash for w in self.run.writes}
        for step in reversed([s for s in self.record.steps if s.version < self.step.version]):
            found = step.first("gate.decided")
            if found is not None and found.meta["action_hash"] in hashes and (found.payload or {})["facts"]:
                return found
        return None

    # --- writes ---

    @cached_property
    def sends(self) -> bool:
        """Whether this step is what came of a POST, and not of a look-up."""
        mark = self.step.mark
        if mark is None:
            return False
        if (result := self.step.first("write.result")) is not None:
            return bool(result.meta["state"] != "not_sent")
        lost = self.step.slug("write.unknown")
        return lost is not None and self._answer(mark.key, mark.attempt) == lost

    def _answer(self, key: str, attempt: int) -> str:
        tries = self.record.writes[key]["attempts"]
        return next((str(a["answer"]) for a in tries if a["number"] == attempt), "")

    def _run_write(self, release: Release, mark: SentMark, backend: Backend) -> WriteAnswer:
        if (lost := self.step.slug("write.unknown")) is not None:
            raise OutcomeUnknown(slug=lost)
        result = self.step.first("write.result")
        if result is None or self.run.open_write is None:
            raise NotRecorded("an answer to the refund")
        if result.meta["state"] == "refused":
            raise Refused(slug=result.meta["error"])
        replayed = self._answer(release.key, mark.attempt) == "replayed"
        return WriteAnswer(refund=self._found(self.run.open_write, result), replayed=replayed, took_ms=0)

    def _found(self, write: SeenWrite, event: Happened) -> Refund:
        seen = [o for o in self.record.observations if o.call_id == write.call_id and o.kind == "result"]
        return facts.listed_write(write, event, seen[0].content if seen else None)

    def _look_up(self, backend: Backend, order_id: str, trace_id: str) -> tuple[Refund, ...]:
        write = self.run.open_write
        assert write is not None, "only an open write is looked up"
        doubt = self.step.slug("write.unknown")
        if doubt == "ambiguous":
            return tuple(facts.alike(write))
        if self.chance.away or (doubt is not None and doubt not in LOOKED and not self.sends):
            raise read_error(doubt or "upstream_unavailable")
        found = self.step.first("write.reconciled", "write.result")
        if found is None or self.sends or not found.meta.get("refund_id"):
            return ()
        return (self._found(write, found),)

    def _verified(self, own: tuple[OwnWrite, ...]) -> OrderFacts:
        write = self.run.open_write or next(w for w in reversed(self.run.writes) if w.state == "confirmed")
        earlier = self._earlier()
        if earlier is None:
            raise NotRecorded("live facts")
        known = facts.of_decision(earlier, own, write.key)
        checked = self.step.first("write.verified", "write.mismatch")
        if checked is not None:
            return facts.of_verification(checked.payload or {}, known, write.key)
        doubt = self.step.slug("write.unknown")
        if doubt not in (None, "not_shown"):
            raise read_error(str(doubt))
        if doubt is None and write.state == "pending" and not self._never_shown:
            return facts.with_write(known, write, "pending")
        return facts.without_write(known, write)

    @property
    def _never_shown(self) -> bool:
        """Whether the run ends because the list never showed the write: then it did not show it before, either."""
        last = self.record.steps[-1]
        return last.reason == "verification_inconclusive" and last.slug("write.unknown") == "not_shown"


def _read(call: ReadCall, told: Happened, *, ok: bool, content: Json) -> ReadResult:
    return ReadResult(
        call_id=call.call_id, tool=call.tool, args=call.args, ok=ok, content=content, fetched_at=told.at,
        took_ms=told.meta["took_ms"], retryable=not ok,
    )  # fmt: skip
