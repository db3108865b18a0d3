"""The values that cross the action zone's rooms. A paper: frozen, keyword-only, no Django, no HTTP, no clock.

    text --parse--> Proposal --gate--> Release --executor--> WriteAnswer
                    (untrusted)        (a ticket)

Only `tools.gate` makes a Release; the dispatcher's write takes nothing else, so a model's output that skipped
the gate is a type error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel

from agentsite.money import Money
from agentsite.tenants.profiles import Totals, WriteGrant

Json = dict[str, Any]
Search = Callable[[str], list[Json]]
"""A query to what was found, best first, of the run's own tenant; as many as may be asked for. Of `search_policy`
passages `{"doc", "version", "section", "text", "current", "hash", "score"}`, of `search_cases` precedents."""
Searches = Mapping[str, Search]
"""By tool: reads that reach no business system, made in the thread that holds the database."""
CancelHook = Callable[[str, Json], bool]
"""(call id, arguments) of a handler that was left behind to whether nothing of it goes on any more."""


class Effect(StrEnum):
    """What a tool acts on: `people` tools speak to the customer or to staff, and reach no business system."""

    READ = "read"
    WRITE = "write"
    PEOPLE = "people"


class Permission(StrEnum):
    """`unrestricted` in scope runs; `conditional` runs as its arguments' checks say; `never` is always denied."""

    UNRESTRICTED = "unrestricted"
    CONDITIONAL = "conditional"
    NEVER = "never"


class Danger(StrEnum):
    SAFE = "safe"
    MODERATE = "moderate"
    DANGEROUS = "dangerous"


class Credential(StrEnum):
    NONE = "none"
    COMMERCE_READ = "commerce_read"
    COMMERCE_WRITE = "commerce_write"


@dataclass(frozen=True, kw_only=True)
class ToolEntry:
    """One tool of the registry. Everything about how it may run stands here and is enforced from here.

    `retries`: how often a read is repeated at once after an outage. `coerces`: whether a whole number written as text
    ("3") is taken for one. `cancel` is called where a read ran out of its time or its run was cancelled.
    """

    name: str
    summary: str
    effect: Effect
    permission: Permission
    danger: Danger
    timeout_s: float
    credential: Credential
    arguments: type[BaseModel]
    version: int
    retries: int = 0
    coerces: bool = False
    cancel: CancelHook | None = None
    secret_args: tuple[str, ...] = ()
    """Text arguments of a write that may hold placeholders of secrets (`tools.placeholders`)."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A tool call read from model output: UNTRUSTED. `args` is whatever JSON object the model wrote."""

    call_id: str
    tool: str
    args: Json
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A tenant's business system: where it is, whose credentials, and what it promises about keys and lag.

    `settle_s` is the longest server-side processing plus read lag, in seconds; None: nothing is promised. `secrets`:
    names of placeholders to the environment variables they stand for (M71).
    """

    tenant_id: str
    url: str
    read_token_env: str
    write_token_env: str
    honours_keys: bool
    key_life_s: float
    settle_s: float | None
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What this run may ever do, frozen at admission (M4). `order_ids` None: any order of the customer's."""

    tenant_id: str
    run_id: str
    request_id: str
    trace_id: str
    customer_id: str
    order_ids: tuple[str, ...] | None
    read_tools: tuple[str, ...]
    write_tools: Mapping[str, WriteGrant]
    policy_pin: str
    aggregates: Mapping[str, Totals]
    created_by: str


@dataclass(frozen=True, kw_only=True)
class Order:
    order_id: str
    customer_id: str
    total: Money
    amount_due: Money
    status: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Payment:
    """`state` is captured, authorised, failed, disputed or refunded; any other word counts as not captured."""

    payment_id: str
    order_id: str
    state: str
    amount: Money
    captured_at: str | None
    note: str


@dataclass(frozen=True, kw_only=True)
class Refund:
    """A refund as the provider lists it; key and metadata are None where it keeps none."""

    refund_id: str
    payment_id: str
    order_id: str
    state: str
    amount: Money
    idempotency_key: str | None
    metadata: Mapping[str, Any] | None
    created_at: str | None


@dataclass(frozen=True, kw_only=True)
class OwnWrite:
    """A write of ours on an order, whatever run made it. `first_sent_at` None: never left us.

    `customer_id` is whose run made it; `verified`: confirmed by an independent read, not by an answer alone.
    """

    key: str
    run_id: str
    payment_id: str
    amount: Money
    state: str
    refund_id: str | None
    intent_at: datetime
    first_sent_at: datetime | None
    customer_id: str = ""
    verified: bool = False


@dataclass(frozen=True, kw_only=True)
class OrderFacts:
    """Live facts of one order, read by us for the gate; `epoch` was read before them (`write-path.md` 2)."""

    order: Order
    payments: tuple[Payment, ...]
    refunds: tuple[Refund, ...]
    own: tuple[OwnWrite, ...]
    epoch: int
    read_at: datetime


ReadFacts = Callable[[Backend, str, str, tuple[OwnWrite, ...], int], OrderFacts]
"""(backend, order, trace, our own writes, epoch) to the order's facts; raises tools.errors.ReadFailed."""


@dataclass(frozen=True, kw_only=True)
class PassageRef:
    """A passage that was shown: which one of which version, by the hash of its text; `current` as it was then."""

    doc: str
    version: int
    content_hash: str
    current: bool

    @property
    def name(self) -> str:
        """Two versions may hold the same text: only together with its version is a passage one passage."""
        return f"{self.doc}@v{self.version} {self.content_hash}"


@dataclass(frozen=True, kw_only=True)
class EvidenceItem:
    """An observation a proposal may cite: what it is and, for policy, which passages of which versions.

    `precedent`: it tells of another case, and proves nothing about this one. `order_id`: the order whose records it is.
    """

    obs_id: str
    tool: str
    kind: str
    ok: bool
    doc: str | None = None
    version: int | None = None
    section: str | None = None
    fetched_at: str = ""
    fact: str = ""
    passages: tuple[PassageRef, ...] = ()
    precedent: bool = False
    order_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class PolicyState:
    """The registry's word: the run's pinned document, its pinned version, and the version current now.

    `superseded`: names of the passages asked about that are in no current version any more.
    """

    doc: str
    pinned: int
    current: int | None
    superseded: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class UsedSoFar:
    """What counters say before this action, in its currency: for totals that cannot be split (M118)."""

    agent_on_order_minor: int = 0
    customer_day: tuple[int, int] = (0, 0)
    tenant_hour: tuple[int, int] = (0, 0)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of the gate: its verdict and every number it looked at."""

    name: str
    ok: bool
    inputs: Json = field(default_factory=dict)

    def wire(self) -> Json:
        return {"name": self.name, "ok": self.ok, **({"inputs": self.inputs} if self.inputs else {})}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The gate's answer. `rule` is a stable slug; for a denial it is the reason."""

    kind: Literal["allow", "deny", "needs_approval"]
    rule: str
    checks: tuple[Check, ...]
    action_hash: str | None = None
    required: int = 0
    large: bool = False
    escalate: str | None = None
    facts: Json = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ApprovalTicket:
    """An approval as a value: what was approved, by whom, until when it may run."""

    approval_id: str
    status: str
    action_hash: str
    required: int
    large: bool
    deciders: tuple[str, ...]
    execute_by: datetime | None
    deciders_permitted: bool
    in_time: bool


@dataclass(frozen=True, kw_only=True)
class Release:
    """A ticket for exactly one side effect; made by the gate alone. `body` is what goes on the wire, frozen;
    `origin` is the business system it was released for, and no other may get it; `settle_s` is its promise.
    """

    tenant_id: str
    run_id: str
    request_id: str
    trace_id: str
    tool: str
    args: Json
    policy: str
    action_hash: str
    key: str
    approval_id: str | None
    decision_id: str
    order_id: str
    payment_id: str
    amount: Money
    body: str
    epoch: int
    customer_limit: tuple[int, int] | None
    tenant_limit: tuple[int, int] | None
    origin: str
    settle_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Withheld:
    """The gate will not release: `kind` says what the run does next.

    `denied` (facts no longer allow it), `ask_afresh`, `escalate`, `hold` (try again in `hold_s` seconds).
    """

    kind: Literal["denied", "ask_afresh", "escalate", "hold"]
    rule: str
    checks: tuple[Check, ...] = ()
    decision: Decision | None = None
    hold_s: float = 0


@dataclass(frozen=True, kw_only=True)
class ReadCall:
    """A read the gate allowed, with arguments normalised by the registry."""

    call_id: str
    tool: str
    args: Json


@dataclass(frozen=True, kw_only=True)
class ReadResult:
    """A read's outcome, tied to its call: content, or a typed error; never both, never an empty guess.

    `retry_in_s`: trying again makes no sense before so many seconds, where the other side or its breaker said so.
    """

    call_id: str
    tool: str
    args: Json
    ok: bool
    content: Any
    fetched_at: datetime
    took_ms: int
    meta: Json = field(default_factory=dict)
    retryable: bool = False
    retry_in_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class SentMark:
    """The committed right to send once: by the monotonic clock, at `marked_at`; the window is in seconds."""

    attempt: int
    marked_at: float
    window_s: float


@dataclass(frozen=True, kw_only=True)
class WriteAnswer:
    """What the business system answered to a write that it made (or already had)."""

    refund: Refund
    replayed: bool
    took_ms: int


def action_hash(*, tenant_id: str, run_id: str, tool: str, args: Json, policy: str) -> str:
    """`sha256:` over the RFC 8785 form of the exact action, as the contract's section 7 fixes it."""
    from agentsite.canonical import sha256

    return sha256({"v": 1, "tenant_id": tenant_id, "run_id": run_id, "tool": tool, "args": args, "policy": policy})


def write_key(*, tenant_id: str, request_id: str, tool: str, target: str) -> str:
    """The logical idempotency key: a pure function of request, tool and target (M47)."""
    return f"{tenant_id}/{request_id}:{tool}:{target}"
