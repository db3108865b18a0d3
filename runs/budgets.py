"""What a run may still use: whether it is at a cap, and how much room its next model call has. A paper.

Caps are checked before a call, with a reservation for the reply nobody knows yet (M5, M70): whatever a provider answers
within the room it was given, no cap is passed, but for what the estimate of the prompt was wrong by. Imports no clock,
store, environment or zone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from agentsite.prices import Price, PriceTable, micros, price_of
from runs.contracts import RunState, Spent
from tools.contracts import Json

LEAST_OUTPUT_TOKENS = 256
"""A reply shorter than this is hardly one: rather none is asked for than one that will be cut."""
NOTHING = Spent()
MICROS = 1_000_000
BEGUN = frozenset({"stream_cut", "interrupted", "not_json", "not_an_answer", "model_answer_too_large"})
"""Errors of calls that somebody had begun to answer."""
UNHEARD = frozenset({"model_timeout", "model_connection_lost"})
"""Errors of calls that a provider may be at work on all the same. Their money counts and their tokens do not: else an
outage that is waited out for a day would use up a run's tokens."""
Reason = Literal["budget_exhausted", "deadline_exceeded"]


@dataclass(frozen=True, kw_only=True)
class Room:
    """What one call may use: tokens of its reply, and what it costs at most in micro-units (0: nothing is paid)."""

    max_output_tokens: int
    reserved_micros: int


def over(run: RunState) -> Reason | None:
    """The cap that a run has reached, so that no model is asked any more; None: none. Active time counts no wait."""
    limits = run.contract.limits
    if run.active_ms >= limits.deadline_ms:
        return "deadline_exceeded"
    used_up = (
        run.model_calls >= limits.max_model_calls
        or run.input_tokens >= limits.max_input_tokens
        or run.output_tokens >= limits.max_output_tokens
        or (run.cost_micros > 0 and run.cost_micros >= micros(limits.max_cost))
    )
    return "budget_exhausted" if used_up else None


def room(
    run: RunState, *, estimate_tokens: int, price: Price | None, max_output: int, spent: Spent = NOTHING
) -> Room | Reason:  # fmt: skip
    """What the next call may use, or why there is none.

    `estimate_tokens`: the prompt's size as calibrated; `price` of the route, None where none is known or nothing is
    paid; `max_output`: the site's longest reply; `spent`: by calls of this same turn, which the run does not count yet.
    """
    limits = run.contract.limits
    if estimate_tokens > limits.max_input_tokens - run.input_tokens - spent.input_tokens:
        return "budget_exhausted"
    reply = min(max_output, limits.max_output_tokens - run.output_tokens - spent.output_tokens)
    if price is not None and price.costs:
        reply = min(reply, _affordable(run, estimate_tokens, price, spent))
    if reply < min(LEAST_OUTPUT_TOKENS, limits.max_output_tokens, max_output):
        return "budget_exhausted"
    return Room(max_output_tokens=reply, reserved_micros=_cost(price, estimate_tokens, reply))


def price(run: RunState, table: PriceTable | None, route: str) -> Price | None:
    """The price that a call of a route is reserved by: the dearest of the route's own and of the models that answered
    this run on it, since the next answer may come from any of them. None where none is known or nothing is paid."""
    names = ("", *(t.answered_model for t in run.turns if t.route == route))
    known = [p for name in dict.fromkeys(names) if (p := price_of(table, route, name)) is not None]
    if not known:
        return None
    return Price(
        currency=known[0].currency, input=max(p.input for p in known), cached=max(p.cached for p in known),
        output=max(p.output for p in known),
    )  # fmt: skip


def of_failed(
    price: Price | None, slug: str, *, estimate_tokens: int, input_tokens: int, output_tokens: int
) -> Spent:  # fmt: skip
    """What a call that brought no turn is taken to have used; both counts are what its provider got round to saying.

    One that had begun to answer has read the prompt. One that said nothing may have, and may be paid for.
    """
    begun = output_tokens > 0 or slug in BEGUN
    read = input_tokens or (estimate_tokens if begun else 0)
    paid = read or (estimate_tokens if slug in UNHEARD else 0)
    return Spent(input_tokens=read, output_tokens=output_tokens, cost_micros=_cost(price, paid, output_tokens))


def together(one: Spent, other: Spent) -> Spent:
    return Spent(
        input_tokens=one.input_tokens + other.input_tokens, output_tokens=one.output_tokens + other.output_tokens,
        cost_micros=one.cost_micros + other.cost_micros,
    )  # fmt: skip


def cost(contract: Json, micros: int) -> dict[str, str]:
    """What calls cost, for people and clients: at least four decimals of six (`0.0123`), in the currency of the run's
    cap, since a model priced in another is never asked. `contract` as it is stored, whatever release wrote it."""
    whole, rest = divmod(micros, MICROS)
    digits = f"{rest:06d}"
    cap = (contract.get("limits") or {}).get("max_cost") or {}
    return {"amount": f"{whole}.{digits[:4]}{digits[4:].rstrip('0')}", "currency": cap.get("currency", "USD")}


def _affordable(run: RunState, estimate_tokens: int, price: Price, spent: Spent) -> int:
    """How long a reply what is left of the money pays for; nothing where prices are in another currency than the cap:
    a cap that cannot be compared is taken as reached."""
    limits = run.contract.limits
    if price.currency != limits.max_cost.currency:
        return 0
    left = micros(limits.max_cost) - run.cost_micros - spent.cost_micros - estimate_tokens * price.dearest_input
    if left < 0:
        return 0
    return math.floor(left / price.output) if price.output else limits.max_output_tokens


def _cost(price: Price | None, estimate_tokens: int, reply_tokens: int) -> int:
    if price is None:
        return 0
    return math.ceil(estimate_tokens * price.dearest_input + reply_tokens * price.output)
