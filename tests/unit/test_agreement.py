"""The verdict on one proposal of shadow mode, from values alone."""

from __future__ import annotations

import pytest

from agentsite.money import Money
from runs.agreement import Made, Proposed, judge

pytestmark = pytest.mark.any_database


def made(payment_id: str = "pay_2", minor: int = 200_000, *, order_id: str = "8472", currency: str = "INR") -> Made:
    return Made(
        refund_id=f"rf_{payment_id}_{minor}", order_id=order_id, payment_id=payment_id,
        amount=Money(minor=minor, currency=currency), at=None,
    )  # fmt: skip


PROPOSED = Proposed(order_id="8472", payment_id="pay_2", amount=Money(minor=200_000, currency="INR"))
CASES = [
    (PROPOSED, [made()], "agree", "same_refund", None),
    (PROPOSED, [made(minor=120_000), made(minor=80_000)], "agree", "same_refund", None),
    (None, [], "agree", "nothing_refunded", None),
    (PROPOSED, [], "overreach", "staff_refunded_nothing", 200_000),
    (PROPOSED, [made(minor=50_000)], "overreach", "staff_refunded_less", 150_000),
    (PROPOSED, [made("pay_1")], "overreach", "staff_refunded_another_payment", 200_000),
    (PROPOSED, [made(minor=50_000), made("pay_1", 150_000)], "overreach", "staff_refunded_less", 150_000),
    (PROPOSED, [made(order_id="8473")], "overreach", "staff_refunded_another_payment", 200_000),
    (None, [made()], "miss", "staff_refunded", None),
    (PROPOSED, [made(minor=250_000)], "miss", "staff_refunded_more", None),
    (PROPOSED, [made(), made("pay_1", 100)], "miss", "staff_refunded_more", None),
    (PROPOSED, [made(), made("pay_9", order_id="8473")], "unclear", "several_orders", None),
    (None, [made(), made("pay_9", order_id="8473")], "unclear", "several_orders", None),
    (PROPOSED, [made(currency="USD")], "unclear", "another_currency", None),
]  # fmt: skip


@pytest.mark.parametrize(("proposed", "staff", "verdict", "why", "over"), CASES)
def test_verdict_tells_too_far_before_not_far_enough_and_doubt_before_both(
    proposed: Proposed | None, staff: list[Made], verdict: str, why: str, over: int | None
) -> None:
    found = judge(proposed, staff)
    assert (found.verdict, found.why) == (verdict, why)
    assert found.over == (None if over is None else Money(minor=over, currency="INR"))
