"""What is committed before the intent wins; what comes after waits for the truth (`write-path.md` 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from agentsite import dbtime
from agentsite.refusals import Refusal
from agentsite.tenants import shadowing
from agentsite.tenants.models import Tenant
from approvals import queue
from approvals.models import Approval, Decision
from runs.advance import advance
from runs.models import Attempt, Input, Run, Shadow, Write
from tests.races.contest import Contest, released, seq_of
from tests.world import TENANT

RELEASE, OTHER = 0, 1
pytestmark = pytest.mark.parametrize("times", [12, pytest.param(100, marks=pytest.mark.long)])


def allowed_runs(contest: Contest, name: str, times: int) -> Iterator[tuple[Run, int | None]]:
    """Runs that stand before their release, each with who must be first; for most of them chance decides."""
    contest.people_are_needed_above("5000.00")
    for number in range(times):
        order_id = f"{name}{number}"
        contest.business.seed_double_charges(order_id)
        run = contest.proposes(order_id, f"pay_{order_id}b")
        assert run.status == "approved"
        yield run, {0: RELEASE, 1: OTHER}.get(number)


def order_of(run: Run) -> str:
    return run.request_id.removeprefix("req-")


def nothing_was_sent(contest: Contest, run: Run, kind: str) -> bool:
    """Whether no POST was made; where one was, the input's place in the record is after the intent.

    A cancel that comes after the intent and before the mark still stops it: proven never sent.
    """
    intent, arrived = seq_of(run, "write.intent"), Input.objects.get(run=run, kind=kind).seq
    posts = contest.posts_on(order_of(run))
    assert posts == 0 or (posts == 1 and intent is not None and arrived > intent)
    return posts == 0


def check_both(seen: Counter[bool], times: int) -> None:
    assert seen.total() == times
    assert seen[True] > 0
    assert seen[False] > 0


def test_message_before_the_intent_sends_nothing(contest: Contest, times: int) -> None:
    seen: Counter[bool] = Counter()
    for run, first in allowed_runs(contest, "msg", times):
        contest.race(released(run), lambda run=run: contest.world.message(run, "wait, please"), first=first)  # type: ignore[misc]
        seen[nothing_was_sent(contest, run, "message")] += 1
        status = contest.world.fresh(run).status
        assert status in ("gathering", "approved", "executing", "executed", "verified")
    check_both(seen, times)


def test_cancel_never_hides_a_refund_and_never_lets_one_out(contest: Contest, times: int) -> None:
    seen: Counter[bool] = Counter()
    for run, first in allowed_runs(contest, "cancel", times):
        contest.race(released(run), lambda run=run: contest.world.cancel(run), first=first)  # type: ignore[misc]
        early = nothing_was_sent(contest, run, "cancel")
        done = contest.finish(run)
        made = contest.business.made_on(order_of(run))
        if early:
            assert (done.status, done.outcome, made) == ("cancelled", "cancelled", [])
            assert "refund" not in contest.world.said(run) or "No refund" in contest.world.said(run)
        else:
            assert (done.status, done.outcome, len(made)) == ("completed", "refunded", 1)
            assert made[0]["refund_id"] in contest.world.said(run)
        assert contest.posts_on(order_of(run)) == len(made)
        seen[early] += 1
    check_both(seen, times)


def test_pause_before_the_intent_sends_nothing(contest: Contest, times: int) -> None:
    seen: Counter[bool] = Counter()
    for run, first in allowed_runs(contest, "pause", times):
        Tenant.objects.filter(id=TENANT).update(paused=False)
        _, paused_at = contest.race(released(run), pause, first=first)
        assert isinstance(paused_at, datetime)
        write = Write.objects.filter(run=run).first()
        assert write is None or write.intent_at <= paused_at
        # A pause between the intent and the mark stops the sending too: what is marked went out, nothing else did.
        sent = Attempt.objects.filter(write__run=run, sent_at__isnull=False).first()
        assert sent is None or (sent.sent_at is not None and sent.sent_at <= paused_at)
        assert contest.posts_on(order_of(run)) == (0 if sent is None else 1)
        if write is None:
            held = contest.world.fresh(run)
            assert (held.status, held.waiting_for) == ("approved", "staff")
        seen[write is None] += 1
    check_both(seen, times)
    Tenant.objects.filter(id=TENANT).update(paused=False)
    done = contest.finish(held)
    assert (done.outcome, contest.posts_on(order_of(held))) == ("refunded", 1)


def pause() -> datetime:
    """Pauses the tenant; a moment, by the database's clock, at which that was surely committed."""
    Tenant.objects.filter(id=TENANT).update(paused=True)
    return dbtime.now()


def test_shadow_mode_lets_out_only_what_was_marked_before_it(contest: Contest, times: int) -> None:
    seen: Counter[bool] = Counter()
    for run, first in allowed_runs(contest, "shadow", times):
        _, entered_at = contest.race(released(run), enter_shadow_mode, first=first)
        assert isinstance(entered_at, datetime)
        sent = Attempt.objects.filter(write__run=run, sent_at__isnull=False).first()
        assert sent is None or (sent.sent_at is not None and sent.sent_at <= entered_at)
        done = contest.finish(run)
        if sent is None:
            assert (done.status, done.reason, done.outcome) == ("escalated", "shadow_mode", "handed_to_staff")
            assert not Write.objects.filter(run=run).exclude(state="not_sent").exists()
        else:
            assert (done.status, done.outcome) == ("completed", "refunded")
        assert contest.posts_on(order_of(run)) == len(contest.business.made_on(order_of(run))) == int(sent is not None)
        assert Shadow.objects.filter(run=run).exists() == (sent is None)
        assert shadowing.leave(TENANT, by="tests", reason="the next one", figures={})
        seen[sent is None] += 1
    check_both(seen, times)


def enter_shadow_mode() -> datetime:
    """A moment, by the database's clock, at which that was surely committed."""
    assert shadowing.enter(TENANT, by="tests", reason="a race")
    return dbtime.now()


def test_opposite_decisions_during_a_release_leave_one_decision_and_its_deed(contest: Contest, times: int) -> None:
    seen: Counter[str] = Counter()
    for name in ("lead_17", "lead_18"):
        contest.world.person(name)
    for number in range(times):
        order_id = f"dec{number}"
        contest.business.seed_double_charges(order_id)
        run = contest.proposes(order_id, f"pay_{order_id}b")
        asked = contest.world.approval(run)
        works = passes(run)
        said = contest.race(
            deciding(contest, asked, "approve", "lead_17"), deciding(contest, asked, "reject", "lead_18"), works,
            first={0: 0, 1: 1}.get(number),
        )  # fmt: skip
        (winner,) = {"approve", "reject"} & set(said)
        assert sorted(map(str, said)) == sorted(["None", "already-decided", winner])
        assert [d.decision for d in Decision.objects.filter(approval=asked, counted=True)] == [winner]
        done = contest.finish(run)
        posts = contest.posts_on(order_id)
        assert (done.outcome, posts) == (("refunded", 1) if winner == "approve" else ("rejected", 0))
        seen[winner] += 1
    assert set(seen) == {"approve", "reject"}


def passes(run: Run) -> Callable[[], object]:
    """A worker that comes by a few times while people decide."""

    def work() -> None:
        for _ in range(3):
            advance(str(run.pk))

    return work


def deciding(contest: Contest, asked: Approval, decision: str, by: str) -> Callable[[], object]:
    """One person's click: the decision that was recorded, or the slug of its refusal."""

    def click() -> str:
        try:
            queue.decide(asked.id, contest.world.people[by], decision, asked.action_hash, "as I see it")
        except Refusal as refusal:
            return refusal.slug
        return decision

    return click
