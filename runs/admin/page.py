"""What the page of one run shows, as plain values; every list has a limit. Part of a door: reads rows, writes none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentsite import dbtime
from agentsite.text import visible
from approvals import labels
from approvals.models import Approval, Decision
from runs import budgets, reply, store
from runs.admin import shadow, spans, waterfall, wording
from runs.models import (
    LIVE_VALUES,
    Archive,
    Draft,
    Event,
    Feedback,
    Input,
    Observation,
    Run,
    Shadow,
    Turn,
    Webhook,
    Write,
)
from tools.contracts import Json

MAX_TURNS = 100
MAX_OBSERVATIONS = 300
MAX_DECISIONS = 200
MAX_EVENTS = 500
MAX_WEBHOOKS = 50


@dataclass(frozen=True, kw_only=True)
class Told:
    """One line of the timeline, in words; `type` is the record's own name of it."""

    offset: str
    at: datetime
    type: str
    words: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class TurnRow:
    """One model call: the row, what it cost, when it began, whether another model answered than was asked."""

    turn: Turn
    cost: str
    offset: str
    answered: bool


def stamp(run: Run) -> str:
    """Changes whenever something that the page shows has changed, but for the clock."""
    draft = Draft.objects.filter(run=run).values_list("at", flat=True).first()
    held = run.lease_token is not None
    compared = Shadow.objects.filter(pk=run.pk).values_list("compared_at", flat=True).first()
    parts = [run.version, run.last_seq, int(held), run.due_at, run.approval_id, draft, _decided(run), compared]
    return "/".join(str(part) for part in parts)


def _decided(run: Run) -> int:
    return Decision.objects.filter(approval__run_id=run.pk).count()


def _contract(run: Run) -> dict[str, Any]:
    """As it is stored; nothing of one that is no object: this page is where staff see what became of its run."""
    stored: object = run.contract
    return stored if isinstance(stored, dict) else {}


def _decisions(run: Run) -> list[Decision]:
    """Those that count and the newest attempts that do not, in their order: no crowd of attempts hides a decision."""
    rows = Decision.objects.filter(approval__run_id=run.pk)
    newest = rows.filter(counted=False).order_by("-id")[:MAX_DECISIONS]
    return sorted([*rows.filter(counted=True)[:MAX_DECISIONS], *newest], key=lambda row: row.pk)


def lives(run: Run) -> bool:
    return run.status in LIVE_VALUES


def build(run: Run) -> dict[str, Any]:
    """Everything of a run that its page shows."""
    run_id = str(run.pk)
    turns = list(Turn.objects.filter(run=run).order_by("number")[:MAX_TURNS])
    newest = list(Event.objects.filter(run=run).order_by("-seq")[:MAX_EVENTS])[::-1]
    inputs = list(Input.objects.filter(run=run).order_by("seq")[:MAX_DECISIONS])
    writes = list(Write.objects.filter(run=run).prefetch_related("tries").order_by("intent_at")[:MAX_DECISIONS])
    shown: dict[str, Any] = {
        "run": run, "orders": [o.order_id for o in run.orders.all()[:20]], "goal": str(_contract(run).get("goal", "")),
        "inputs": inputs,
        "approvals": list(Approval.objects.filter(run_id=run.pk).order_by("requested_at")[:MAX_DECISIONS]),
        "decisions": _decisions(run),
        "writes": writes, "turns": [_turn(run, t) for t in turns], "used": _used(run, turns), "draft": _draft(run),
        "observations": list(Observation.objects.filter(run=run).order_by("position")[:MAX_OBSERVATIONS]),
        "timeline": [_told(e, run) for e in newest], "told": reply.customer_message(store.story(run_id)),
        "feedback": Feedback.objects.filter(run=run).first(),
        "webhooks": list(Webhook.objects.filter(run=run).defer("body").order_by("seq")[:MAX_WEBHOOKS]),
        "lives": lives(run), "stamp": stamp(run), "standing": list(wording.standing(run)), "shadow": _shadow(run),
        "archive": Archive.objects.filter(run=run).first(),
    }  # fmt: skip
    return shown | _waterfall(run, shown, newest, [t.turn for t in shown["turns"]])


def _waterfall(run: Run, shown: dict[str, Any], newest: Sequence[Event], turns: Sequence[Turn]) -> dict[str, Any]:
    rows = spans.Rows(
        run=run, events=newest, turns=turns, observations=shown["observations"], approvals=shown["approvals"],
        attempts=[t for w in shown["writes"] for t in w.tries.all()], inputs=shown["inputs"], draft=shown["draft"],
    )  # fmt: skip
    now = run.completed_at or dbtime.now()
    drawn = waterfall.draw(spans.of(rows), run.created_at, now)
    return {"waterfall": drawn, "later": spans.after_the_end(newest)}


def _shadow(run: Run) -> Json | None:
    """Whether the run only proposes, or ended as a proposal, and what that came to."""
    row = Shadow.objects.filter(pk=run.pk).first()
    if row is None:
        return {"verdict": ""} if _contract(run).get("shadow") is True else None
    told = {"verdict": shadow.name(row.verdict), "tone": shadow.TONES[row.verdict], "why": shadow.why(row)}
    return {**told, "proposed": shadow.proposed(row), "did": shadow.did(row)}


def _draft(run: Run) -> Draft | None:
    """The call under way. One that a dead worker left behind is older than whatever the run did since."""
    return Draft.objects.filter(run=run, at__gt=run.updated_at).first() if lives(run) else None


def _turn(run: Run, turn: Turn) -> TurnRow:
    since = (turn.started_at - run.created_at).total_seconds()
    other = bool(turn.answered_model) and not turn.route.endswith(f":{turn.answered_model}")
    offset = f"+{waterfall.short(max(0.0, since))}"
    return TurnRow(turn=turn, cost=money(run, turn.cost_micros), offset=offset, answered=other)


def money(run: Run, micros: int) -> str:
    """What so many micros are in the currency of the run's own cap; empty where nothing was counted."""
    if not micros:
        return ""
    try:
        return "{amount} {currency}".format(**budgets.cost(_contract(run), micros))
    except (AttributeError, KeyError, TypeError, ValueError):
        return f"{micros} micros"


def _used(run: Run, turns: Sequence[Turn]) -> Json:
    """What the run used in all; calls that brought no turn are in the sums, so they may pass those of its turns."""
    return {
        "input": run.input_tokens, "output": run.output_tokens, "cached": sum(t.cached_tokens for t in turns),
        "cost": money(run, run.cost_micros), "calls": run.model_calls,
        "lost": run.input_tokens + run.output_tokens - sum(t.input_tokens + t.output_tokens for t in turns),
        "active": waterfall.short(run.active_ms / 1000),
    }  # fmt: skip


def _told(event: Event, run: Run) -> Told:
    row = labels.event_row(event.type, event.at, run.created_at, event.meta, event.payload)
    return Told(
        offset=row.offset, at=event.at, type=row.type, words=wording.event(event.type),
        summary=wording.summary(event) or row.summary,
    )  # fmt: skip


def title(run: Run) -> str:
    return f"Run {visible(run.request_id)}"
