"""What a log line says of rows comes with the statement that wrote them, and is what they say when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from agentsite import dbtime
from approvals.models import Approval
from runs.contracts import Contract
from runs.models import Event, Run, RunOrder
from runs.store import admit, left, outbox, told
from tests.world import World, final, gather, refund, s0, worker_dies

Said = tuple[Any, Any]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Said]]:
    """Of each commit: what its lines say, and what the rows say when they are read after it."""
    found, tell = list[Said](), told._left

    def watched(run_id: str, about: frozenset[str], now: left.Rows | None) -> Any:
        line = tell(run_id, about, now)
        if about:
            found.append((line, tell(run_id, about, None)))
        return line

    monkeypatch.setattr(told, "_left", watched)
    yield found


def agree(said: list[Said]) -> None:
    assert said and [line for line, _ in said] == [rows for _, rows in said]


def test_lines_of_a_refund_say_what_its_rows_say(world: World, said: list[Said]) -> None:
    run = world.start()
    world.approve(run)
    assert world.resume(run, until="completed").outcome == "refunded"
    agree(said)
    last = said[-1][0]
    assert [w["state"] for w in last["writes"]] == ["confirmed"] and last["run"]["completed_at"]
    assert [t["answer"] for w in last["writes"] for t in w["attempts"]] == ["made"]


def test_lines_of_two_refunds_of_a_run_say_what_their_rows_say(world: World, said: list[Said]) -> None:
    both = (refund(amount="500.00"), refund(payment_id="pay_9001", amount="400.00"))
    run = world.start(script=s0(*both))
    for _ in both:
        if world.fresh(run).status == "awaiting_approval":
            world.approve(run)
            run = world.resume(run)
    agree(said)
    assert [w["state"] for w in said[-1][0]["writes"]] == ["confirmed", "confirmed"]


def test_lines_of_questions_asked_again_say_what_their_rows_say(world: World, said: list[Said]) -> None:
    run = world.start(script=[*gather(), refund(), refund(amount="1500.00"), final(), final()])
    world.reject(run, "too much")
    run = world.resume(run)
    assert Approval.objects.filter(run_id=run.pk).count() == 2
    world.cancel(run)
    world.resume(run, until="cancelled")
    agree(said)


@pytest.mark.parametrize("after", ["intent", "sent", "post"])
def test_lines_of_a_write_that_lost_its_worker_say_what_its_rows_say(
    world: World, said: list[Said], after: Any
) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(world.fresh(run), after=after)
    world.resume(run, until="completed")
    agree(said)


def test_lines_of_a_refund_ask_the_rows_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite is asked afterwards, but for the run that was made just now."""
    asked, read = list[tuple[str, ...]](), told._read

    def counted(run_id: str, about: tuple[str, ...]) -> left.Rows:
        asked.append(about)
        return read(run_id, about)

    monkeypatch.setattr(told, "_read", counted)
    run = world.start()
    world.approve(run)
    world.resume(run, until="completed")
    assert asked == [] if connection.vendor == "postgresql" else ("run", "versions") not in asked


def test_admission_leaves_the_run_where_its_record_stands(world: World) -> None:
    run = world.admit()
    first = Event.objects.get(run=run)
    assert (run.last_seq, run.chain_head, first.seq, first.mac) == (1, first.mac, 1, run.chain_head)
    assert abs((dbtime.now() - run.created_at).total_seconds()) < 60
    assert list(RunOrder.objects.filter(run=run).values_list("order_id", flat=True)) == ["8472"]


def test_second_admission_of_a_request_adds_nothing(world: World) -> None:
    first = world.admit()
    contract = Contract.model_validate(first.contract)
    found = admit.create(contract, body_hash=first.body_hash)
    assert (found.new, found.run_id) == (False, str(first.pk))
    assert (Run.objects.count(), Event.objects.count()) == (1, 1)


def test_who_is_called_is_known_by_the_statement_that_wrote(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    known = list[str]()
    monkeypatch.setattr(outbox, "know", lambda run_id, url: known.append(url))
    monkeypatch.setattr(outbox, "_uncalled", set[str]())
    world.start()
    assert known and set(known) == {""}
