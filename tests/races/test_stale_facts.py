"""Two refunds of one excess under two keys: the provider cannot save us, the order's epoch must (`write-path.md` 2)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from runs import orchestrator, store
from runs.contracts import Outcome
from runs.errors import IntentLost
from runs.models import Run
from runs.states import On
from tests.races.contest import Contest, released

pytestmark = pytest.mark.parametrize("times", [8, pytest.param(50, marks=pytest.mark.long)])


def refunded_on(contest: Contest, order_id: str) -> Decimal:
    return sum((Decimal(r["amount"]["amount"]) for r in contest.business.made_on(order_id)), Decimal(0))


def two_on_one_order(contest: Contest, order_id: str) -> tuple[Run, Run]:
    """Two allowed refunds of 2,000.00, one on each capture of an order whose excess is 2,000.00."""
    contest.business.seed_double_charges(order_id)
    a = contest.proposes(order_id, f"pay_{order_id}a", request_id=f"req-A-{order_id}")
    b = contest.proposes(order_id, f"pay_{order_id}b", request_id=f"req-B-{order_id}")
    assert (a.status, b.status) == ("approved", "approved")
    return a, b


def test_facts_older_than_another_refund_release_nothing(contest: Contest, times: int) -> None:
    contest.people_are_needed_above("5000.00")
    for number in range(times):
        order_id = f"stale{number}"
        a, b = two_on_one_order(contest, order_id)
        claimed = store.claim(str(a.pk))
        assert claimed is not None
        held = store.load(str(a.pk), claimed.token)
        outcome = orchestrator.step(held)
        assert isinstance(outcome, Outcome)
        assert outcome.on is On.RELEASED
        done = contest.world.resume(b)
        assert (done.status, done.outcome) == ("completed", "refunded")
        with pytest.raises(IntentLost, match="epoch"):
            store.checkpoint(held, outcome, keep=True)
        assert contest.posts_on(order_id) == 1
        store.release(str(a.pk), claimed.token, 0)
        lost = contest.world.resume(a)
        assert contest.world.rules(a)[-1] == "nothing_refundable"
        assert (lost.status, lost.outcome) == ("completed", "no_refund_due")
        assert (contest.posts_on(order_id), refunded_on(contest, order_id)) == (1, Decimal("2000.00"))


def test_b19_two_refunds_let_loose_together_never_exceed_the_excess(contest: Contest, times: int) -> None:
    contest.people_are_needed_above("5000.00")
    for number in range(times):
        order_id = f"loose{number}"
        runs = two_on_one_order(contest, order_id)
        contest.race(*map(released, runs))
        ends = [contest.finish(run) for run in runs]
        assert sorted(str(end.outcome) for end in ends) == ["no_refund_due", "refunded"]
        assert (contest.posts_on(order_id), refunded_on(contest, order_id)) == (1, Decimal("2000.00"))
        (loser,) = [end for end in ends if end.outcome == "no_refund_due"]
        assert contest.world.rules(loser)[-1] == "nothing_refundable"
