"""Asks the routes in their order for one model turn; what came of it is a value. Never writes a run, parses nothing.

Every request that leaves us is counted against MODEL_TRIES, whichever route it went to; nobody behind us repeats one.
No database connection is held meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsite import prices, telemetry
from runs import budgets, sizes
from runs import prompt as prompts
from runs.contracts import LLMTurnResult, ModelCall, NewEvent, Prompt, RunState, Spent, ToolSchema
from runs.errors import ContextTooLong, ModelError, ModelInterrupted, ModelUnavailable
from runs.orchestrator import calling
from runs.orchestrator.ports import Ports

MIN_CALL_S = 1.0
SMALLER = 0.5
"""The share of a prompt that did not fit which is tried next; once a turn."""
UNASKED = frozenset({calling.OPEN, "dialect_not_available", "unknown_model", "script_unreadable"})
"""Errors by which nobody was asked."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A model call that was made: by which route, of what, what it answered or why not, how long it took.

    `error`: of the route that may answer first, where one may answer later. `tried`: breakers let a call through.
    `requests` left us, `spent` is what those cost that brought no turn. `window_tokens`: what a refusal taught.
    `over`: the cap that left no route room for a call. `starved`: the run's own time was over before an answer could
    have come, which says nothing of the models. `cost_micros`: of the turn, 0 where no price is known.
    """

    route: str
    prompt: Prompt
    result: LLMTurnResult | None
    error: ModelError | None
    tried: bool = True
    events: tuple[NewEvent, ...]
    took_ms: int
    requests: int = 0
    spent: Spent = budgets.NOTHING
    window_tokens: int | None = None
    over: str | None = None
    starved: bool = False
    cost_micros: int = 0

    @property
    def interrupted(self) -> bool:
        return isinstance(self.error, ModelInterrupted)


def build(run: RunState, tools: tuple[ToolSchema, ...], ports: Ports) -> Prompt:
    """The prompt of the next call, within the configured window or what a refusal taught this run."""
    settings = ports.settings()
    window = min(settings.MODEL_WINDOW_TOKENS, run.window_tokens or settings.MODEL_WINDOW_TOKENS)
    return prompts.build_prompt(run, tools, window_tokens=window, tail_tokens=settings.MODEL_TAIL_TOKENS)


def ask(run: RunState, prompt: Prompt, ports: Ports) -> Call:
    """Try the routes in order; the first that answers counts."""
    asking, routes = _Asking(run, prompt, ports), ports.settings().AGENT_MODELS
    for number, route in enumerate(routes):
        if number and not asking.may_go_on():
            break
        if number:
            asking.happened("route.switched", to=route)
        result = asking.on(route)
        if result is not None or asking.interrupted:
            return asking.call(route, result)
    return asking.call(routes[-1], None)


class _Asking:
    """The calls of one turn as they go."""

    def __init__(self, run: RunState, prompt: Prompt, ports: Ports) -> None:
        self._run, self._prompt, self._ports = run, prompt, ports
        self._span, self._started = f"m{run.model_calls + 1}", ports.monotonic()
        self._events, self._errors = list[NewEvent](), list[ModelError]()
        self._requests, self._spent = 0, budgets.NOTHING
        self._window: int | None = None
        self._shrunk = False
        self._over: str | None = None
        self._built()

    @property
    def interrupted(self) -> bool:
        return bool(self._errors) and isinstance(self._errors[-1], ModelInterrupted)

    def happened(self, kind: str, **meta: object) -> None:
        self._events.append(NewEvent(type=kind, meta=meta, span=self._span))

    def may_go_on(self) -> bool:
        """Whether there is time, permission and a request left for one more call."""
        tries = self._run.turn_requests + self._requests < self._ports.settings().MODEL_TRIES
        return tries and self._left_s() >= MIN_CALL_S and not self._ports.stopped()

    def on(self, route: str) -> LLMTurnResult | None:
        """A route's turn; where it says that the prompt is too long, that of one smaller prompt."""
        errors, whole = len(self._errors), self._prompt
        result = self._once(route)
        refused = len(self._errors) > errors and isinstance(self._errors[-1], ContextTooLong)
        if not (refused and self.may_go_on() and self._shrink()):
            return result
        result = self._once(route)
        if result is None and isinstance(self._errors[-1], ContextTooLong):
            # What no smaller prompt was enough for teaches nothing: the next route, and the next turn, get it whole.
            self._prompt, self._window = whole, None
            self._built()
        return result

    def call(self, route: str, result: LLMTurnResult | None) -> Call:
        error = None if result is not None else _soonest(self._errors)
        return Call(
            route=route, prompt=self._prompt, result=result, error=error, events=tuple(self._events),
            tried=result is not None or any(e.slug != calling.OPEN for e in self._errors), took_ms=self._took_ms(),
            requests=self._requests, spent=self._spent, window_tokens=self._window, starved=self._starved(),
            over=None if self._errors else self._over, cost_micros=self._cost_of(route, result),
        )  # fmt: skip

    def _cost_of(self, route: str, turn: LLMTurnResult | None) -> int:
        if turn is None:
            return 0
        return self._cost(route, turn.model, turn.input_tokens, turn.cached_tokens, turn.output_tokens)

    def _once(self, route: str) -> LLMTurnResult | None:
        room = self._room(route)
        if not isinstance(room, budgets.Room):
            self._over = room
            self.happened("route.passed_over", route=route, error=room)
            return None
        self.happened("model.called", route=route)
        began = self._ports.monotonic()
        try:
            self._ports.leave_database()
            with telemetry.context(span=self._span):
                result = self._ports.complete(self._call_of(route, room.max_output_tokens))
        except ModelError as failed:
            self._failed(route, failed, round((self._ports.monotonic() - began) * 1000))
            return None
        self._requests += 1
        return result

    def _room(self, route: str) -> budgets.Room | str:
        """What the call may use: the reply nobody knows yet is reserved before it is asked for (M70)."""
        settings = self._ports.settings()
        return budgets.room(
            self._run, estimate_tokens=self._size(), price=self._price(route),
            max_output=settings.MODEL_MAX_OUTPUT_TOKENS, spent=self._spent,
        )  # fmt: skip

    def _price(self, route: str) -> prices.Price | None:
        return budgets.price(self._run, self._ports.settings().MODEL_PRICES, route)

    def _size(self) -> int:
        """Tokens of the prompt, as this run's own turns calibrate them."""
        return round(self._prompt.estimate * sizes.ratio(self._run))

    def _call_of(self, route: str, max_output_tokens: int) -> ModelCall:
        return ModelCall(
            run_id=self._run.run_id, seen_input_seq=self._run.last_input_seq, route=route, prompt=self._prompt,
            timeout_s=self._left_s(), max_output_tokens=max_output_tokens,
        )  # fmt: skip

    def _failed(self, route: str, failed: ModelError, took_ms: int) -> None:
        self._errors.append(failed)
        self._requests += failed.slug not in UNASKED
        spent = budgets.of_failed(
            self._price(route), failed.slug, estimate_tokens=self._size(), input_tokens=failed.input_tokens,
            output_tokens=failed.output_tokens,
        )  # fmt: skip
        self._spent = budgets.together(self._spent, spent)
        used = {"input_tokens": failed.input_tokens, "output_tokens": failed.output_tokens}
        told = {k: v for k, v in used.items() if v}
        self.happened("model.failed", route=route, error=failed.slug, took_ms=took_ms, **told)

    def _cost(self, route: str, answered: str, asked: int, cached: int, said: int) -> int:
        table = self._ports.settings().MODEL_PRICES
        return prices.cost_micros(table, route, answered, input=asked, cached=cached, output=said) or 0

    def _shrink(self) -> bool:
        """A prompt of half the size in place of the one that did not fit, once. False: there is no smaller one."""
        window, tail = round(self._size() * SMALLER), self._ports.settings().MODEL_TAIL_TOKENS
        smaller = prompts.build_prompt(
            self._run, self._prompt.tools, window_tokens=window, tail_tokens=min(tail, window // 2)
        )
        if self._shrunk or not smaller.fits:
            return False
        self._prompt, self._window, self._shrunk = smaller, window, True
        self._built()
        return True

    def _built(self) -> None:
        prompt = self._prompt
        self.happened("prompt.built", hash=prompt.hash, version=prompt.version, tools=prompt.tools_hash)

    def _starved(self) -> bool:
        """Whether nothing but time was missing, and what the run had left of it is too little to call a model down."""
        enough_s = calling.ENOUGH_OF_TIMEOUT * self._ports.settings().MODEL_TIMEOUT_S
        return {e.slug for e in self._errors} == {"model_timeout"} and self._run_left_s() < enough_s

    def _run_left_s(self) -> float:
        return (self._run.contract.limits.deadline_ms - self._run.active_ms) / 1000

    def _left_s(self) -> float:
        """One budget for all routes of a turn: the call's timeout, and what the run has left of its active time."""
        budget = min(self._ports.settings().MODEL_TIMEOUT_S, max(MIN_CALL_S, self._run_left_s()))
        return budget - (self._ports.monotonic() - self._started)

    def _took_ms(self) -> int:
        return round((self._ports.monotonic() - self._started) * 1000)


def _soonest(errors: list[ModelError]) -> ModelError | None:
    """What cut the call; else the error to wait by: of a route that may answer later, the one that names the least
    time; else the last."""
    if errors and isinstance(errors[-1], ModelInterrupted):
        return errors[-1]
    later = [e for e in errors if isinstance(e, ModelUnavailable)]
    return min(later, key=lambda e: e.retry_after_s or 0.0) if later else next(reversed(errors), None)
