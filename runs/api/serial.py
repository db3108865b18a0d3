"""Door: a run, its events and its observations as the contract's JSON. Reads rows, writes none; imports no zone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, WithJsonSchema

from agentsite import clock
from agentsite.money import Money
from approvals.models import Approval
from approvals.states import Approved
from runs import budgets, reply, store
from runs.customer import links
from runs.models import WAITS, WRITE_STATES, Attachment, Event, Input, Observation, Run, Write
from runs.states import Status
from runs.store.tell import STAFF
from tools.contracts import Json

OUTCOMES = (
    "refunded", "partly_refunded", "refund_failed", "no_refund_due", "answered", "rejected", "cancelled",
    "handed_to_staff", "resolved_by_staff",
)  # fmt: skip

LEFT_BY_A_DOOR = ("cancel.requested", "notice")
STAFFS_OWN = {"run.resolved": {"note"}, "run.hurried": {"note"}, "write.doubted": {"note"},
              "write.settled_by_staff": {"seen"}}  # fmt: skip


def _one_of(*words: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": list(words)})


StatusWord = Annotated[str, _one_of(*(status.value for status in Status))]
WaitWord = Annotated[str, _one_of(*WAITS)]
OutcomeWord = Annotated[str, _one_of(*OUTCOMES)]
ApprovalWord = Annotated[str, _one_of(*(status.value for status in Approved))]
WriteWord = Annotated[str, _one_of(*WRITE_STATES)]
Moment = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class View(BaseModel):
    """What goes out; the OpenAPI schema is made of these."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MoneyView(View):
    amount: str
    currency: str


class UsageView(View):
    model_calls: int
    write_attempts: int
    input_tokens: int
    output_tokens: int
    cost: MoneyView
    active_ms: int


class PendingActionView(View):
    tool: str
    args: dict[str, Any]
    evidence: list[str]
    idempotency_key: str


class RunApprovalView(View):
    approval_id: str
    status: ApprovalWord
    action_hash: str
    expires_at: Moment
    approver: str | None


class WriteView(View):
    key: str
    state: WriteWord
    result: dict[str, Any] | None
    refund_id: str | None
    amount: MoneyView


class VersionsView(View):
    model: str | None
    prompt: str | None
    tools: str | None
    policy: str | None
    release: str | None


class AttachmentView(View):
    id: str
    message: str | None
    name: str
    media_type: str
    size: int
    sha256: str


class RunView(View):
    run_id: str
    request_id: str
    trace_id: str
    tenant_id: str
    agent: str
    status: StatusWord
    waiting_for: WaitWord | None
    version: int
    outcome: OutcomeWord | None
    reason: str | None
    contract: dict[str, Any]
    usage: UsageView
    pending_action: PendingActionView | None
    approval: RunApprovalView | None
    writes: list[WriteView]
    verification: dict[str, Any] | None
    versions: VersionsView
    customer_message: str
    reply: str | None
    customer_url: str | None
    attachments: list[AttachmentView]
    created_at: Moment
    updated_at: Moment
    completed_at: Moment | None


class EventView(View):
    seq: int
    type: str
    at: Moment
    span: str | None
    version: int
    data: dict[str, Any]


class ObservationView(View):
    id: str
    kind: str
    tool: str | None
    span: str | None
    source: str
    args: dict[str, Any]
    content: Any
    content_hash: str
    fetched_at: Moment
    took_ms: int


class RunPage(View):
    results: list[RunView]
    next: str | None
    previous: str | None


class EventPage(View):
    results: list[EventView]
    next: str | None


class ObservationPage(View):
    results: list[ObservationView]
    next: str | None


class MessageView(View):
    run_id: str
    message_id: str
    seq: int
    status: StatusWord


class FeedbackView(View):
    run_id: str
    rating: str
    text: str


def run(row: Run, *, link: bool = True) -> Json:
    """One run as the contract shows it."""
    return runs([row], link=link)[0]


def first(row: Run) -> Json:
    """The same of a run without files that was made just now, for whoever made it: nothing else is asked for."""
    return _run(row, None, [], [], store.first_story(row)).model_dump()


def runs(rows: list[Run], *, link: bool = True) -> list[Json]:
    """Runs as the contract shows them, with one query for all their approvals and one for all their writes.

    The customer's link is for those alone who may write to the run: it lets its holder speak as the customer.
    """
    ids = [row.id for row in rows]
    approvals = {a.run_id: a for a in Approval.objects.filter(run_id__in=ids).order_by("requested_at", "id")}
    writes: dict[Any, list[Write]] = defaultdict(list)
    for write in Write.objects.filter(run_id__in=ids).order_by("intent_at", "key"):
        writes[write.run_id].append(write)
    files = _attachments(ids)
    shown = [
        _run(row, approvals.get(row.id), writes[row.id], files[row.id], store.story(str(row.id))).model_dump()
        for row in rows
    ]
    return shown if link else [{**one, "customer_url": None} for one in shown]


def _attachments(run_ids: list[Any]) -> dict[Any, list[AttachmentView]]:
    """The files of each run by reference, the request's own first; `message` is the id of the one they came with."""
    found: dict[Any, list[AttachmentView]] = defaultdict(list)
    kept = Attachment.objects.filter(run_id__in=run_ids).defer("content")
    rows = sorted(kept, key=lambda a: (a.input_seq or 0, a.position))
    seqs = [a.input_seq for a in rows if a.input_seq is not None]
    inputs = Input.objects.filter(run_id__in=run_ids, seq__in=seqs) if seqs else ()
    messages = {(i.run_id, i.seq): i.message_id for i in inputs}
    for a in rows:
        message = messages.get((a.run_id, a.input_seq)) if a.input_seq is not None else None
        found[a.run_id].append(
            AttachmentView(
                id=str(a.id), message=message, name=a.name, media_type=a.media_type, size=a.size, sha256=a.sha256
            )
        )
    return found


def _run(
    row: Run, approval: Approval | None, writes: list[Write], files: list[AttachmentView], story: reply.Story
) -> RunView:  # fmt: skip
    run_id = str(row.id)
    return RunView(
        run_id=run_id, request_id=row.request_id, trace_id=row.trace_id, tenant_id=row.tenant_id, agent=row.agent,
        status=row.status, waiting_for=row.waiting_for, version=row.version, outcome=row.outcome, reason=row.reason,
        contract=_contract(row), usage=_usage(row), pending_action=_action(row.pending_action),
        approval=_approval(approval), writes=[_write(w) for w in writes], verification=row.verification,
        versions=_versions(row), customer_message=reply.customer_message(story), reply=row.reply,
        customer_url=links.url(row.id, row.created_at), attachments=files, created_at=clock.rfc3339(row.created_at),
        updated_at=clock.rfc3339(row.updated_at), completed_at=_moment(row.completed_at),
    )  # fmt: skip


def _moment(value: datetime | None) -> str | None:
    return None if value is None else clock.rfc3339(value)


def _contract(row: Run) -> Json:
    """As it is stored; nothing of one that is no object: its run fails by name, the list that it stands in does not."""
    stored: object = row.contract
    return stored if isinstance(stored, dict) else {}


def _usage(row: Run) -> UsageView:
    return UsageView(
        model_calls=row.model_calls, write_attempts=row.write_attempts, input_tokens=row.input_tokens,
        output_tokens=row.output_tokens, cost=MoneyView(**budgets.cost(_contract(row), row.cost_micros)),
        active_ms=row.active_ms,
    )  # fmt: skip


def _action(pending: Json | None) -> PendingActionView | None:
    """The action that waits; none of a row that no code of ours wrote."""
    names = ("tool", "args", "evidence", "idempotency_key")
    try:
        return PendingActionView(**{name: pending[name] for name in names}) if pending else None
    except (KeyError, TypeError, ValueError):
        return None


def _approval(row: Approval | None) -> RunApprovalView | None:
    if row is None:
        return None
    return RunApprovalView(
        approval_id=row.id, status=row.status, action_hash=row.action_hash,
        expires_at=clock.rfc3339(row.expires_at), approver=row.decided_by,
    )  # fmt: skip


def _write(row: Write) -> WriteView:
    amount = Money(minor=row.amount_minor, currency=row.currency).wire()
    return WriteView(
        key=row.key, state=row.state, result=row.result, refund_id=row.refund_id, amount=MoneyView(**amount)
    )


def _versions(row: Run) -> VersionsView:
    known: Json = row.versions or {}
    return VersionsView(
        model=known.get("model"), prompt=known.get("prompt"), tools=known.get("tools"),
        policy=known.get("policy") or _contract(row).get("policy_version_pin"),
        release=known.get("release") or row.release,
    )  # fmt: skip


def events(rows: Iterable[Event]) -> list[Json]:
    """Events in order; `data` is what happened, ids and erasable payload together, without staff's words to staff."""
    return [
        EventView(
            seq=e.seq, type=e.type, at=clock.rfc3339(e.at), span=e.span, version=e.version,
            data={**e.meta, **_payload(e)},
        ).model_dump()
        for e in rows
    ]  # fmt: skip


def _payload(event: Event) -> Json:
    """What a client may read of it: a person's words for his colleagues are not among that, nor why one said yes."""
    left = event.meta.get("by") if event.type in LEFT_BY_A_DOOR else None
    hidden = {"text"} if str(left or "").startswith(STAFF) else STAFFS_OWN.get(event.type, set())
    if event.type == "approval.decided" and event.meta.get("decision") == "approved":
        hidden = {"reason"}
    return {name: value for name, value in (event.payload or {}).items() if name not in hidden}


def observations(rows: Iterable[Observation]) -> list[Json]:
    """What a run was told, in order; `tool` is null where no tool said it."""
    return [
        ObservationView(
            id=o.obs_id, kind=o.kind, tool=o.source if o.call_id else None, span=o.span or None, source=o.source,
            args=o.args, content=o.content, content_hash=o.content_hash, fetched_at=clock.rfc3339(o.fetched_at),
            took_ms=o.took_ms,
        ).model_dump()
        for o in rows
    ]  # fmt: skip
