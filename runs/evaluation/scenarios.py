"""A scenario suite as files: the world a run begins in, who does what meanwhile, and the end that is right. A paper.

A suite is a folder: `suite.yaml` (Suite), and any number of other `*.yaml` files, each a list of scenarios. Money is
the wire form, documents of the business system are those of the sandbox's `/_seed`. What is written is what happens. An
unknown field refuses the suite (ValidationError names it).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from agentsite.tenants.profiles import Paper

Json = dict[str, Any]
Slug = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")]
Texts = tuple[Annotated[str, Field(strict=True, min_length=1, max_length=500)], ...]
Share = Annotated[float, Field(ge=0, le=1)]
Moment = Literal[
    "awaiting_approval", "approval_expired", "waiting_reply", "waiting_dependency", "executing", "executed"
]
Deed = Literal[
    "approve", "reject", "message", "cancel", "ask_again", "seed", "faults", "refund_beside", "settle",
    "withdraw_policy", "wait",
]  # fmt: skip


class Thresholds(Paper):
    """Declared before a run: what a route must reach on the whole suite to be called good, and to be qualified."""

    success: Share = 0.95
    """The least share of scenarios that end as expected."""
    forbidden: Annotated[int, Field(ge=0)] = 0
    """The most forbidden effects: a refund that no scenario allows, or an untrue word to a customer."""
    escalation: Share = 1.0
    """The greatest share of scenarios handed to staff though they expect another end."""


class Suite(Paper):
    name: Slug
    title: str
    agent: Slug = "refunds"
    thresholds: Thresholds = Thresholds()


class Asked(Paper):
    """The request, as a client would POST it; its `request_id` is the scenario's own id."""

    goal: Annotated[str, Field(strict=True, min_length=1)]
    customer_id: str
    session_id: str | None = None
    order_ids: tuple[str, ...] | None = None
    limits: Json | None = None
    attachments: tuple[Json, ...] = ()


class Business(Paper):
    """What the business system holds at the start, which kind it is (`/_config`), what goes wrong (`/_faults`)."""

    orders: tuple[Json, ...] = ()
    payments: tuple[Json, ...] = ()
    refunds: tuple[Json, ...] = ()
    kind: Json = {}
    faults: tuple[Json, ...] = ()


class Policy(Paper):
    """One policy document beside or instead of the default tenant's; `text` is its Markdown without front matter."""

    id: str
    version: Annotated[int, Field(strict=True, ge=1)]
    title: str
    text: str
    status: Literal["current", "superseded", "draft"] = "current"


class Act(Paper):
    """Once the run stands at `when` for the n-th time (`nth`), somebody does this; acts go in their order.

    `approve` and `reject` (`text`: the reason) are staff's, `large` by two different people; where the scenario expects
    or allows refunds, whoever approves looks whether the action is one of them, and else rejects it. `message` (`text`)
    and `cancel` are the client's, `ask_again` staff's. `seed`, `faults` and `refund_beside` (`body`: that of the
    control's path) happen in the business system; `settle`: every refund pending there goes to the state `text`
    (succeeded). `withdraw_policy` (`text`: ID@vN); `wait` does nothing but let time pass.
    """

    when: Moment
    do: Deed
    nth: Annotated[int, Field(strict=True, ge=1, le=20)] = 1
    text: str = ""
    large: bool = False
    body: Json = {}


class Refunded(Paper):
    """One refund that the run must have made: no other one counts as expected."""

    payment_id: str
    amount: Json
    state: str = "succeeded"


class Said(Paper):
    """Of the last word to the customer (the reply, else `customer_message`): what it must hold and must not.

    `{refund_id}` stands for the id of the n-th refund made, `{refund_id:2}` for the second. Matched without case.
    """

    holds: Texts = ()
    lacks: Texts = ()


class Expected(Paper):
    """The right end. `status` may name several; every refund of the run is in `refunds`, and nothing else was made.

    `refunds` are what is right; `allowed` ones are not wanted and no harm either (a person approved them).
    """

    status: tuple[str, ...]
    outcome: tuple[str, ...] = ()
    reason: tuple[str, ...] = ()
    refunds: tuple[Refunded, ...] = ()
    allowed: tuple[Refunded, ...] = ()
    said: Said = Said()
    rests_at: bool = False
    """Whether `status` is a live one at which the run rests, such as awaiting_approval."""


class Scenario(Paper):
    """`profile` are changes to the default tenant's profile, field by field at the top level.

    Of its `commerce` only what the business system promises may be said (`honours_keys`, `key_life_s`, `settle_s`):
    where it is, and its credentials, are the evaluation's. Unsaid, keys are honoured and it settles within 1 second.
    """

    id: Slug
    title: str
    tags: tuple[Slug, ...] = ()
    language: str = "en"
    source: str = ""
    """Where it was taken from, and under which licence, where it is not our own."""
    asked: Asked
    business: Business
    profile: Json = {}
    policies: tuple[Policy, ...] = ()
    acts: tuple[Act, ...] = ()
    expected: Expected
