"""The values that cross the control zone's rooms. A paper: frozen, keyword-only, no Django, no clock.

`RunRequest` is what a client POSTs; `Contract` is the immutable run request written before any model is called;
`RunState` is what a handler is shown; `Outcome` is what it returns. Handlers write nothing: the store does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from agentsite.money import Money
from agentsite.tenants.profiles import Limits, Paper, SensitiveWords, Totals, WireMoney, WriteGrant
from agentsite.text import has_forbidden
from runs.attachments import Attachments
from runs.states import On, Status
from tools.contracts import (
    Decision,
    EvidenceItem,
    Json,
    Proposal,
    Refund,
    Release,
    Scope,
)

MAX_GOAL_BYTES = 16 * 1024
ID_PATTERN = r"^[A-Za-z0-9_.:@/-]{1,128}$"
REQUEST_ID_PATTERN = r"^[A-Za-z0-9_.@/-]{1,128}$"
SCHEMA = 4
"""Of the contracts that this code writes. Older code leaves a newer one alone: it would not know its fields."""
OLDEST_SCHEMA = 1
"""What this code still reads and goes on with."""


def _clean(text: str) -> str:
    if has_forbidden(text):
        raise ValueError("text may hold no NUL and no lone surrogate")
    return text


def _goal(text: str) -> str:
    if len(_clean(text).encode()) > MAX_GOAL_BYTES:
        raise ValueError("at most 16 KB of text")
    return text


Id = Annotated[str, Field(strict=True, pattern=ID_PATTERN)]
RequestId = Annotated[str, Field(strict=True, pattern=REQUEST_ID_PATTERN)]
CleanText = Annotated[str, Field(strict=True), AfterValidator(_clean)]
Goal = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_goal)]
Cap = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]


class Actor(Paper):
    """On whose behalf the client asks. `customer_id` must own every order the run touches."""

    customer_id: Id
    session_id: Id | None = None
    channel: Annotated[CleanText, Field(max_length=64)] | None = None


class AskedLimits(Paper):
    """Caps a client may narrow; asking for more than the profile grants is 403."""

    max_model_calls: Cap | None = None
    deadline_ms: Cap | None = None
    max_write_attempts: Cap | None = None
    max_input_tokens: Cap | None = None
    max_output_tokens: Cap | None = None
    max_cost: WireMoney | None = None


class RunRequest(Paper):
    """The body of `POST /api/v1/runs`."""

    request_id: RequestId
    goal: Goal
    actor: Actor
    order_ids: Annotated[list[Id], Field(min_length=1, max_length=20)] | None = None
    agent: Annotated[str, Field(strict=True, pattern=r"^[a-z0-9_]{1,64}$")] = "refunds"
    limits: AskedLimits | None = None
    callback_url: Annotated[CleanText, Field(max_length=2000)] | None = None
    attachments: Attachments | None = None


class GrantedScope(Paper):
    order_ids: tuple[str, ...] | None
    read_tools: tuple[str, ...]
    write_tools: dict[str, WriteGrant]
    people_tools: tuple[str, ...] = ()


class Contract(Paper):
    """The immutable run request: made by admission from authenticated inputs, stored before any model call."""

    schema_version: int = SCHEMA
    request_id: str
    trace_id: str
    tenant_id: str
    agent: str
    actor: Actor
    goal: str
    scope: GrantedScope
    limits: Limits
    idempotency_root: str
    policy_version_pin: str
    approval_ttl_s: int
    approved_ttl_s: int
    aggregates: dict[str, Totals]
    queue_owner: str
    manual_qualification: bool
    profile_revision: int
    created_by: str
    sensitive: dict[str, SensitiveWords] = {}
    policy_first: bool = False
    """Whether passages for the goal are looked for before the first model call; runs admitted earlier did not."""
    session_memory: bool = False
    """Whether earlier runs of the same customer's session are shown to the model, as precedents."""
    shadow: bool = False
    """Whether the run proposes and writes nothing: its tenant was in shadow mode when it was admitted (M110)."""


# --- what the model is shown and answers -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Message:
    role: Literal["system", "user"]
    content: str


@dataclass(frozen=True, kw_only=True)
class ToolSchema:
    """A tool as offered to the model: contract name, one-line semantics, JSON Schema of its arguments."""

    name: str
    summary: str
    parameters: Json
    writes: bool


@dataclass(frozen=True, kw_only=True)
class ShownCall:
    """One call of a past turn with its one result. `asked` and `result` are lines of inert text; dialects with calls of
    their own say `tool`, `args` (as stored, normalised) and `evidence` instead of `asked`."""

    call_id: str
    tool: str
    args: Json
    evidence: tuple[str, ...] = ()
    asked: str
    result: str


@dataclass(frozen=True, kw_only=True)
class ShownTurn:
    """One past turn as the model is shown it; a note is lines of inert text tied to no call. Number 0: before any."""

    number: int
    calls: tuple[ShownCall, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def pieces(self) -> tuple[str, ...]:
        """The turn as text, each call with its result and each note by itself, each ending its line."""
        return (*(f"{c.asked}\n{c.result}\n" for c in self.calls), *(f"{note}\n" for note in self.notes))


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A whole prompt: a pure function of state. What stays the same comes first, `snapshot`, which moves, last.

    `system` and `snapshot` are the platform's words, `goal` and `turns` other people's. `template_hash` covers the
    stable text, `hash` everything. `estimate` is in tokens, uncalibrated; not `fits`: even without any turn it passes
    the window.
    """

    system: str
    goal: str
    turns: tuple[ShownTurn, ...] = ()
    snapshot: str = ""
    tools: tuple[ToolSchema, ...]
    version: str
    template_hash: str
    hash: str
    tools_hash: str
    estimate: int = 0
    fits: bool = True

    @property
    def messages(self) -> tuple[Message, Message]:
        """The prompt as text alone, for models that have no calls of their own."""
        history = "".join(piece for turn in self.turns for piece in turn.pieces)
        user = f"{self.goal}{history}{self.snapshot}"
        return Message(role="system", content=self.system), Message(role="user", content=user)


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """One call of a model: for which run, which had seen a door's inputs up to `seen_input_seq`, on which route, with
    what, and within what: seconds in all, and tokens of the reply."""

    run_id: str
    seen_input_seq: int
    route: str
    prompt: Prompt
    timeout_s: float
    max_output_tokens: int


@dataclass(frozen=True, kw_only=True)
class NativeCall:
    """One call in a provider's own form: `theirs` is the provider's id (the n-th call of a turn is our `m{turn}.{n}`),
    `arguments` the JSON text of them as it came, read by the parser alone."""

    theirs: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class LLMTurnResult:
    """One model turn, free of provider fields. `text` obeys the output contract, unless the dialect is `native`: then
    calls stand in `calls` and text without a call is the draft of the reply. `fault` is the slug of an answer that
    broke its dialect: such a turn is invalid, whatever else it holds. `raw` is the redacted answer."""

    text: str
    model: str
    finish_reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    raw: str = ""
    native: bool = False
    calls: tuple[NativeCall, ...] = ()
    thinking: str = ""
    fault: str = ""

    @property
    def said(self) -> str:
        """What the model said in no provider's words: its text, then its calls; for the model's own eyes."""
        spoken = [f"{call.name} {call.arguments}" for call in self.calls]
        return "\n".join([*([self.text] if self.text or not spoken else []), *spoken])


@dataclass(frozen=True, kw_only=True)
class Final:
    """A draft of the reply: UNTRUSTED prose and the observations it says it rests on."""

    text: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Invalid:
    """A turn that is neither calls nor a draft; `slug` is stable, `detail` is fed back to the model."""

    slug: str
    detail: Json = field(default_factory=dict)


Parsed = tuple[Proposal, ...] | Final | Invalid


# --- a run as its handlers see it --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SeenObservation:
    obs_id: str
    position: int
    call_id: str
    span: str
    kind: str
    source: str
    args: Json
    content: Any
    content_hash: str
    meta: Json
    fetched_at: datetime

    @property
    def ok(self) -> bool:
        return self.kind == "result"

    @property
    def erased(self) -> bool:
        """Whether what it said is gone: it proves nothing any more, and not that nothing was read."""
        return self.meta.get("erased") is True


@dataclass(frozen=True, kw_only=True)
class SeenTurn:
    number: int
    route: str
    answered_model: str
    prompt_version: str
    proposals: tuple[Proposal, ...]
    final: Final | None
    error: Json | None
    input_tokens: int = 0
    estimate: int = 0
    """Tokens the prompt was thought to have, uncalibrated; 0 where that was not recorded."""


@dataclass(frozen=True, kw_only=True)
class SeenAttempt:
    number: int
    prepared_at: datetime
    sent_at: datetime | None
    gives_up_at: datetime | None
    answer: str


@dataclass(frozen=True, kw_only=True)
class SeenWrite:
    key: str
    order_id: str
    payment_id: str
    tool: str
    args: Json
    action_hash: str
    approval_id: str | None
    decision_id: str
    body: str
    origin: str
    amount: Money
    state: str
    refund_id: str | None
    refund_state: str | None
    call_id: str
    intent_at: datetime
    unknown_since: datetime | None
    absent_at: datetime | None
    executed_at: datetime | None
    seen_at: datetime | None
    looks: int
    attempts: tuple[SeenAttempt, ...]

    @property
    def sent(self) -> bool:
        """Whether any attempt was ever marked sent."""
        return any(a.sent_at is not None for a in self.attempts)


@dataclass(frozen=True, kw_only=True)
class SeenApproval:
    """The run's latest approval as its handlers see it."""

    approval_id: str
    status: str
    action_hash: str
    required: int
    large: bool
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    reason: str
    execute_by: datetime | None
    expired: bool
    late: bool
    deciders_permitted: bool
    deciders: tuple[str, ...]
    shown_changes: tuple[Json, ...] = ()
    """What its page showed as moved since it was asked: `{"what", "old", "new"}` each."""


@dataclass(frozen=True, kw_only=True)
class SeenInput:
    seq: int
    kind: str
    text: str
    by: str
    at: datetime
    attachments: tuple[Json, ...] = ()
    """The files that came with it, by reference: name, media type, size and hash."""


@dataclass(frozen=True, kw_only=True)
class PendingAction:
    """The one write a run has proposed: the normalised action, never the model's own text of it."""

    call_id: str
    tool: str
    args: Json
    evidence: tuple[str, ...]
    action_hash: str
    key: str
    rule: str = ""
    decision_id: str = ""
    turn: int = 0

    def wire(self) -> Json:
        return {
            "call_id": self.call_id, "tool": self.tool, "args": self.args, "evidence": list(self.evidence),
            "action_hash": self.action_hash, "idempotency_key": self.key, "rule": self.rule,
            "decision_id": self.decision_id, "turn": self.turn,
        }  # fmt: skip


def pending_from_wire(data: Json) -> PendingAction:
    return PendingAction(
        call_id=data["call_id"], tool=data["tool"], args=data["args"], evidence=tuple(data["evidence"]),
        action_hash=data["action_hash"], key=data["idempotency_key"], rule=data["rule"],
        decision_id=data["decision_id"], turn=data["turn"],
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Everything a handler may look at. `now` is database time at load; `lease` fences what it returns."""

    run_id: str
    tenant_id: str
    request_id: str
    trace_id: str
    agent: str
    contract: Contract
    status: Status
    reason: str | None
    waiting_for: str | None
    resume_status: Status | None
    dependency: str | None
    status_since: datetime
    created_at: datetime
    version: int
    last_input_seq: int
    folded_input_seq: int
    pending: PendingAction | None
    verification: Json | None
    model_calls: int
    write_attempts: int
    input_tokens: int
    output_tokens: int
    cost_micros: int
    active_ms: int
    repairs: int
    retries: int
    voids: int
    attempts: int
    lease: str
    now: datetime
    observations: tuple[SeenObservation, ...]
    turns: tuple[SeenTurn, ...]
    writes: tuple[SeenWrite, ...]
    approval: SeenApproval | None
    inputs: tuple[SeenInput, ...]
    down_since: datetime | None = None
    """Since when a dependency gave no answer; None once it gave one."""
    listed_from: datetime | None = None
    window_tokens: int | None = None
    """The size a provider's refusal taught this run's prompts to keep within; None: the configured window."""
    turn_requests: int = 0
    """Requests made to providers for the turn that is not there yet."""
    last_seq: int = 0
    chain_head: str = ""
    """Where its record of events stood; for the store alone."""
    versions: Json = field(default_factory=dict)
    """What its row keeps of the versions it was worked on with; for the store alone."""

    @property
    def confirmed(self) -> tuple[SeenWrite, ...]:
        return tuple(w for w in self.writes if w.state == "confirmed")

    @property
    def open_write(self) -> SeenWrite | None:
        return next((w for w in self.writes if w.state in ("intent", "sent", "unknown", "pending")), None)

    @property
    def unanswered(self) -> tuple[Proposal, ...]:
        """Proposals of the last turn that have no observation yet: stored, not yet acted on."""
        answered = {o.call_id for o in self.observations}
        last = self.turns[-1].proposals if self.turns else ()
        return tuple(p for p in last if p.call_id not in answered)

    def scope(self) -> Scope:
        c = self.contract
        return Scope(
            tenant_id=self.tenant_id, run_id=self.run_id, request_id=self.request_id, trace_id=self.trace_id,
            customer_id=c.actor.customer_id, order_ids=c.scope.order_ids, read_tools=c.scope.read_tools,
            write_tools=c.scope.write_tools, policy_pin=c.policy_version_pin, aggregates=c.aggregates,
            created_by=c.created_by,
        )  # fmt: skip


# --- what a handler returns --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NewEvent:
    """`meta` holds ids and slugs, `payload` whatever an erasure must be able to remove."""

    type: str
    meta: Json = field(default_factory=dict)
    payload: Json | None = None
    span: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewObservation:
    kind: str
    source: str
    content: Any
    call_id: str = ""
    span: str = ""
    args: Json = field(default_factory=dict)
    meta: Json = field(default_factory=dict)
    fetched_at: datetime | None = None
    took_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class NewTurn:
    span: str
    route: str
    prompt: Prompt
    raw: str
    proposals: tuple[Proposal, ...] = ()
    final: Final | None = None
    error: Json | None = None
    answered_model: str = ""
    finish_reason: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    estimate: int = 0
    registry_version: str = ""
    cost_micros: int = 0
    took_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What model calls that brought no turn cost all the same, as far as their answers went."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0


@dataclass(frozen=True, kw_only=True)
class NewApproval:
    """What the queue needs to ask a person: the action, the live facts, the checks, the cited evidence."""

    pending: PendingAction
    decision: Decision
    order_id: str
    payment_id: str
    amount: Money
    policy: str
    evidence: tuple[EvidenceItem, ...]


@dataclass(frozen=True, kw_only=True)
class WriteChange:
    """A write's new state. `refund` is the provider's own record where it was seen."""

    key: str
    state: str
    refund: Refund | None = None
    answer: str = ""
    absent: bool = False
    look_in_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Intent:
    """The point of no return: checked and committed whole, or not at all (`write-path.md` 1)."""

    release: Release
    pending: PendingAction
    seen_input_seq: int
    route_qualification: int | None
    needs_person: bool
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What happened in one handler. `on` decides the next status, by the table and by nothing else."""

    on: On
    reason: str | None = None
    outcome: str | None = None
    waiting_for: str | None = None
    due_in_s: float | None = None
    due_at: datetime | None = None
    events: tuple[NewEvent, ...] = ()
    observations: tuple[NewObservation, ...] = ()
    turn: NewTurn | None = None
    pending: PendingAction | None = None
    clear_pending: bool = False
    approval: NewApproval | None = None
    void_approval: str | None = None
    expire_approval: bool = False
    intent: Intent | None = None
    resend: Release | None = None
    write: WriteChange | None = None
    verification: Json | None = None
    reply: str | None = None
    versions: Json = field(default_factory=dict)
    resume: Status | None = None
    dependency: str | None = None
    active_ms: int = 0
    repairs: int | None = None
    retries: int | None = None
    voids: int = 0
    folded: int | None = None
    requests: int = 0
    spent: Spent | None = None
    window_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A verification's verdict: passed, pending, not_shown, failed, mismatch or over_refunded."""

    verdict: Literal["passed", "pending", "not_shown", "failed", "mismatch", "over_refunded"]
    record: Json
    refund: Refund | None = None
