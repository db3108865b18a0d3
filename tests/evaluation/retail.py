"""109 retail support cases, written by nobody here, as scenarios: the owed refund exactly once, or none at all.

The cases are those of tau2-bench and tau-bench (MIT), see `../shared/cases/README.md`; without them there are none.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from runs.evaluation.scenarios import Act, Asked, Business, Expected, Refunded, Said, Scenario

CASES = Path(__file__).resolve().parents[3] / "shared/cases/retail/cases.jsonl"
ASKS_ABOVE = Decimal(100)
PROFILE: dict[str, Any] = {
    "write_tools": {
        "issue_refund": {"by_currency": {"USD": {"max_amount": "10000.00", "requires_approval_above": "100.00"}}}
    },
    "aggregates": {},
}  # fmt: skip


def scenarios() -> tuple[Scenario, ...]:
    """All of them, in a tenant each: several are about one order."""
    if not CASES.exists():
        return ()
    return tuple(_scenario(json.loads(line)) for line in CASES.read_text().splitlines())


def _scenario(case: dict[str, Any]) -> Scenario:
    owed = case["expected_refund"]
    asks = owed is not None and Decimal(owed["amount"]["amount"]) > ASKS_ABOVE
    return Scenario(
        id=_slug(case["case"]), title=case["kind"], tags=("retail",), source="tau2-bench and tau-bench (MIT)",
        asked=Asked(
            goal=case["goal"], customer_id=case["actor"]["customer_id"], order_ids=(case["order"]["order_id"],)
        ),
        business=Business(
            orders=(case["order"],), payments=tuple(case["payments"]), refunds=tuple(case["refunds"])
        ),
        profile=PROFILE, acts=(Act(when="awaiting_approval", do="approve"),) if asks else (),
        expected=_right(owed) if owed is not None else _nothing(),
    )  # fmt: skip


def _slug(name: str) -> str:
    return f"case-{name.replace('_', '-').lower()}"


def _right(owed: dict[str, Any]) -> Expected:
    amount = f"{Decimal(owed['amount']['amount']):,.2f}"
    return Expected(
        status=("completed",), outcome=("refunded",), said=Said(holds=("{refund_id}", amount)),
        refunds=(Refunded(payment_id=owed["payment_id"], amount=owed["amount"]),),
    )  # fmt: skip


def _nothing() -> Expected:
    return Expected(
        status=("completed",), outcome=("no_refund_due", "answered"), said=Said(lacks=("has been made and confirmed",))
    )
