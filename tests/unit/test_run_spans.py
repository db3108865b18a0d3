"""What a run's page draws: spans from rows, and their places on a line of time. No database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from approvals.models import Approval
from runs.admin import charts, spans, waterfall
from runs.admin.board import percentile
from runs.admin.spans import Rows, Span
from runs.models import Attempt, Event, Input, Observation, Run, Turn

pytestmark = pytest.mark.any_database
BEGAN = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


class Story:
    """Rows of a run as they would stand in the database, none of them saved."""

    def __init__(self, **run: Any) -> None:
        self.run = Run(created_at=BEGAN, status="completed", **run)
        self.events = list[Event]()
        self.turns = list[Turn]()
        self.read = list[Observation]()
        self.asked = list[Approval]()
        self.tries = list[Attempt]()
        self.inputs = list[Input]()

    def happened(self, seconds: float, version: int, kind: str, span: str | None = None, **meta: Any) -> None:
        seq = len(self.events) + 1
        self.events.append(Event(seq=seq, type=kind, at=at(seconds), version=version, span=span, meta=meta))

    def moved(self, seconds: float, version: int, to: str, took_ms: int) -> None:
        self.happened(seconds, version, "run.status", to=to, took_ms=took_ms, **{"from": "?"})

    def turn(self, number: int, began: float, took_ms: int, ended: float, version: int, **fields: Any) -> None:
        self.turns.append(Turn(number=number, span=f"m{number}", started_at=at(began), took_ms=took_ms, **fields))
        self.happened(ended, version, "model.replied", f"m{number}")

    def spans(self) -> list[Span]:
        rows = Rows(
            run=self.run, events=self.events, turns=self.turns, observations=self.read, approvals=self.asked,
            attempts=self.tries, inputs=self.inputs,
        )  # fmt: skip
        return spans.of(rows)

    def drawn(self) -> waterfall.Waterfall:
        return waterfall.draw(self.spans(), BEGAN, at(0))


def told(row: waterfall.Row) -> tuple[str, str, str, str]:
    return row.label, row.at, row.waited, row.took


def whole() -> Story:
    """Queue, a model call, a read, the gate, ten hours for a person, the refund, its check."""
    story = Story()
    story.turn(1, 0.5, 200, 0.8, 2)
    story.moved(0.8, 2, "gathering", 300)
    story.read.append(Observation(obs_id="obs_1", call_id="m1.1", fetched_at=at(0.95), took_ms=100))
    story.happened(1.0, 3, "tool.observed", call="m1.1", tool="get_order", took_ms=100)
    story.happened(1.5, 4, "gate.decided", decision="needs_approval", rule="refund_above_1000_requires_approval")
    story.happened(1.5, 4, "approval.requested", approval_id="apr_1")
    story.moved(1.5, 4, "awaiting_approval", 400)
    decided = at(36_001.5)
    story.asked.append(Approval(id="apr_1", status="consumed", decided_at=decided, decided_by="lead_17"))
    story.happened(36_002.5, 5, "approval.decided")
    story.moved(36_002.5, 5, "approved", 10)
    story.happened(36_003.0, 6, "write.intent")
    story.moved(36_003.0, 6, "executing", 200)
    tried = Attempt(number=1, prepared_at=at(36_003), sent_at=at(36_003.1), answered_at=at(36_003.6), answer="made")
    story.tries.append(tried)
    story.happened(36_003.1, 6, "write.sent")
    story.happened(36_003.7, 7, "write.result", state="succeeded")
    story.moved(36_003.7, 7, "executed", 50)
    story.happened(36_004.0, 8, "write.verified", verdict="passed")
    story.moved(36_004.0, 8, "verified", 250)
    story.happened(36_004.2, 9, "reply.sent")
    story.moved(36_004.2, 9, "completed", 100)
    return story


def test_waiting_for_a_worker_stands_apart_from_working() -> None:
    rows = whole().drawn().rows
    assert [told(r) for r in rows] == [
        ("Model call 1", "+500 ms", "500 ms", "200 ms"),
        ("get_order", "+850 ms", "50 ms", "100 ms"),
        ("Gate, on live facts", "+1.1 s", "100 ms", "400 ms"),
        ("Waiting for a person's decision", "+1.5 s", "", "10 h 0 min"),
        ("Checked again, refund recorded", "+10 h 0 min", "300 ms", "200 ms"),
        ("Refund sent, attempt 1", "+10 h 0 min", "", "500 ms"),
        ("Verified by an independent read", "+10 h 0 min", "50 ms", "250 ms"),
        ("Reply sent", "+10 h 0 min", "200 ms", "–"),
    ]
    assert rows[0].moment == "30 Nov 2026, 10:00:00 UTC"
    assert (rows[3].note, rows[3].tone) == ("Approved by lead_17", "person")


def test_ten_hours_of_waiting_are_drawn_short_and_said() -> None:
    drawn = whole().drawn()
    assert drawn.squeezed == ("10 h 0 min",)
    assert (drawn.people, len(drawn.bands)) == ("10 h 0 min", 1)
    person, model = drawn.rows[3].bars[0], drawn.rows[0].bars[-1]
    assert float(model.width[:-1]) > 4  # 200 ms of 1.8 s worked
    assert float(person.width[:-1]) < 45
    ends = [float(b.x[:-1]) + float(b.width[:-1]) for r in drawn.rows for b in r.bars]
    assert max(ends) <= 100.01
    assert drawn.ticks[0].text == "0"


def test_each_failed_call_is_a_bar_of_its_own_before_the_one_that_answered() -> None:
    story = Story()
    story.happened(1.0, 2, "model.called", "m1", route="a:x")
    story.happened(1.0, 2, "model.failed", "m1", route="a:x", error="model_timeout", took_ms=300)
    story.happened(1.0, 2, "model.failed", "m1", route="b:y", error="rate_limited", took_ms=100)
    story.turn(1, 0.1, 900, 1.0, 2)
    assert [(s.label, s.bad, s.note) for s in story.spans()] == [
        ("Model call, no answer", True, "Model timeout · a:x"),
        ("Model call, no answer", True, "Rate limited · b:y"),
        ("Model call 1", False, ""),
    ]
    assert [told(r)[1:] for r in story.drawn().rows] == [
        ("+100 ms", "100 ms", "300 ms"), ("+400 ms", "", "100 ms"), ("+500 ms", "", "500 ms"),
    ]  # fmt: skip


def test_attempt_without_an_answer_ends_when_it_was_given_up() -> None:
    story = Story()
    lost = Attempt(number=1, prepared_at=at(1), sent_at=at(1), gives_up_at=at(3))
    never = Attempt(number=2, prepared_at=at(5))
    story.tries += [lost, never]
    assert [(s.label, s.note, s.bad) for s in story.spans()] == [
        ("Refund sent, attempt 1", "no answer", True), ("Attempt 2, never sent", "", False)]  # fmt: skip
    assert [told(r)[3] for r in story.drawn().rows] == ["2.0 s", "–"]


def test_time_until_the_next_look_is_no_queue() -> None:
    story = Story()
    story.moved(1.0, 2, "executing", 0)
    story.happened(2.0, 3, "write.unknown", error="absent_once")
    story.happened(32.0, 4, "write.reconciled", state="found")
    story.moved(32.0, 4, "executed", 100)
    drawn = story.drawn()
    assert [told(r)[2] for r in drawn.rows] == ["1.0 s", "29.9 s"]
    assert drawn.waited == "1.0 s"
    assert drawn.rows[1].bars[0].tone == "look"


def test_outage_and_the_customers_answer_are_waits() -> None:
    story = Story()
    story.happened(1.0, 2, "model.failed", "m1", route="a:x", error="model_timeout", took_ms=500)
    story.moved(1.0, 2, "waiting_dependency", 600)
    story.turn(1, 61.0, 100, 61.2, 3)
    story.moved(61.2, 3, "waiting_reply", 200)
    story.inputs.append(Input(seq=9, kind="message", at=at(600)))
    story.turn(2, 602.0, 100, 602.2, 4)
    assert [(s.label, s.person, s.note) for s in story.spans() if s.kind == "wait"] == [
        ("Waiting for a system that is down", False, ""), ("Waiting for the customer's answer", True, "Message"),
    ]  # fmt: skip
    assert [told(r) for r in story.drawn().rows if r.label.startswith("Waiting")] == [
        ("Waiting for a system that is down", "+1.0 s", "", "1 min"),
        ("Waiting for the customer's answer", "+1 min", "", "8 min"),
    ]
    assert [told(r)[2] for r in story.drawn().rows if r.label == "Model call 2"] == ["2.0 s"]


def test_what_came_after_the_end_is_counted_and_not_drawn() -> None:
    story = whole()
    story.happened(90_000.0, 9, "run.resolved")
    story.happened(90_000.0, 9, "reply.sent")
    assert spans.after_the_end(story.events) == 2
    assert [r.label for r in story.drawn().rows].count("Reply sent") == 1


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({"status": "gathering", "lease_token": None}, "Waiting for a worker"),
        ({"status": "executing", "lease_token": None}, "Waiting to look again"),
        ({"status": "gathering", "lease_token": "t"}, "A worker has it"),
    ],
)
def test_living_run_shows_what_goes_on_now(fields: dict[str, Any], label: str) -> None:
    story = Story()
    for name, value in fields.items():
        setattr(story.run, name, value)
    [row] = waterfall.draw(story.spans(), BEGAN, at(7)).rows
    assert (row.label, row.took) == (label, "7.0 s so far")


def test_run_without_any_event_draws_nothing() -> None:
    assert Story().drawn().rows == ()


def test_only_so_many_rows_are_drawn() -> None:
    story = Story()
    for number in range(waterfall.MAX_ROWS + 3):
        story.happened(number, number + 2, "tool.observed", call=f"c{number}", tool="get_order", took_ms=5)
    drawn = story.drawn()
    assert (len(drawn.rows), drawn.left_out) == (waterfall.MAX_ROWS, 3)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 ms"), (0.0234, "23 ms"), (0.9996, "1.0 s"), (59.96, "60.0 s"), (61, "1 min"),
                          (36_120, "10 h 2 min")]
)  # fmt: skip
def test_length_of_time_is_read_at_a_glance(seconds: float, text: str) -> None:
    assert waterfall.short(seconds) == text


@pytest.mark.parametrize(
    ("ordered", "share", "found"),
    [([], 0.5, None), ([7.0], 0.9, 7.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0), (list(range(1, 11)), 0.9, 9)],
)
def test_percentile_is_a_value_that_was_there(ordered: list[float], share: float, found: float | None) -> None:
    assert percentile(ordered, share) == found


def test_shares_of_nothing_are_no_slices() -> None:
    assert charts.share([("Approved", 0, "good")]).slices == ()
    half = charts.share([("Approved", 1, "good"), ("Expired", 1, "wait"), ("Void", 0, "plain")])
    assert [(s.name, s.x, s.width) for s in half.slices] == [
        ("Approved", "0.00%", "50.00%"),
        ("Expired", "50.00%", "50.00%"),
    ]
