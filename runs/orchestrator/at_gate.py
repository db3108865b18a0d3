"""What the gate is told by rows of ours, all of one moment and by one statement: our books, the policy, the route."""

from __future__ import annotations

from dataclasses import dataclass

from agentsite import questions
from runs import qualification
from runs.store import OrderStanding, ledger
from tools.contracts import PassageRef, PolicyState
from tools.policy import freshness


@dataclass(frozen=True, kw_only=True)
class Asked:
    """About which action it is asked. `leave_out`: the key of a write that is left out of its own sums; `route`
    proposed the action, by a model that called itself `answered_model`; `rests_on`: passages that it may rest on."""

    tenant_id: str
    agent: str
    customer_id: str
    order_id: str
    currency: str
    leave_out: str
    pin: str
    rests_on: tuple[PassageRef, ...]
    route: str
    answered_model: str
    manual_allowed: bool


@dataclass(frozen=True, kw_only=True)
class Told:
    """`qualification`: the id of the one that the proposing route has at this moment."""

    books: OrderStanding
    policy: PolicyState
    qualification: int | None


def ask(asked: Asked) -> Told:
    """Never from memory: what is decided about money is decided on rows as they are now."""
    books, policy, qualified = questions.together(
        ledger.standing_question(
            asked.tenant_id, asked.customer_id, asked.order_id, asked.currency, leave_out=asked.leave_out
        ),
        freshness.question(asked.tenant_id, asked.pin, asked.rests_on),
        qualification.question(asked.agent, asked.route, asked.answered_model, manual_allowed=asked.manual_allowed),
    )
    return Told(books=books, policy=policy, qualification=qualified)
