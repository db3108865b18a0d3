"""Creates runs and appends what doors leave for them. Part of the store; imports no zone.

A door's input and its event are one transaction. An input takes a sequence number and leaves the version alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction

from agentsite import clock, dbtime, env, telemetry
from approvals import queue
from runs import precheck
from runs.attachments import MAX_RUN_FILES, NewAttachment
from runs.contracts import Contract, NewEvent
from runs.errors import RunEnded, TooManyFiles
from runs.models import Feedback, Input, Run, RunOrder
from runs.states import TERMINAL, WRITING, Status
from runs.store import anchored, attached, clean, events
from runs.store.lease import raw_id
from runs.store.load import listed_from
from tools.contracts import Json

EVENT_OF = {
    "message": "message.received",
    "cancel": "cancel.requested",
    "ask_again": "notice",
    "escalate": "notice",
}
TERMINAL_VALUES = frozenset(s.value for s in TERMINAL)
WRITING_VALUES = frozenset(s.value for s in WRITING)
# From the second void in a run on, messages are shown on the approval and void nothing (`write-path.md` 6).
VOIDS_BY_MESSAGE = 1
# A write under way is not hurried by an input: it is reconciled first, on its own times.
NOT_WOKEN = (Status.EXECUTING.value, Status.EXECUTED.value)


@dataclass(frozen=True, kw_only=True)
class Created:
    run_id: str
    new: bool
    body_hash: str


@dataclass(frozen=True, kw_only=True)
class AppendedInput:
    seq: int
    new: bool
    status: str


def create(
    contract: Contract, *, body_hash: str, callback_url: str = "", release: str = "",
    files: Sequence[NewAttachment] = (),
) -> Created:  # fmt: skip
    """Insert the run, or find the one of this request: one statement decides, however many arrive at once."""
    contract, files = clean.contract(contract), attached.cleaned(files, contract.tenant_id, contract.agent)
    with transaction.atomic():
        run = _new_run(contract, body_hash, callback_url, release)
        run.restored_at = _restored_at(run)
        Run.objects.bulk_create([run], ignore_conflicts=True)
        stored = Run.objects.values("id", "body_hash").get(tenant_id=run.tenant_id, request_id=run.request_id)
        new = stored["id"] == run.id
        if new:
            _first_rows(run, contract, files)
    return Created(run_id=str(stored["id"]), new=new, body_hash=stored["body_hash"])


def _new_run(contract: Contract, body_hash: str, callback_url: str, release: str) -> Run:
    moment = dbtime.now()
    return Run(
        tenant_id=contract.tenant_id, request_id=contract.request_id, body_hash=body_hash,
        trace_id=contract.trace_id, agent=contract.agent, customer_id=contract.actor.customer_id,
        contract=contract.model_dump(mode="json"), schema=contract.schema_version, release=release,
        created_by=contract.created_by, callback_url=callback_url, status=Status.ACCEPTED.value,
        status_since=moment, due_at=moment, enqueued_at=moment, created_at=moment, updated_at=moment,
        versions={"policy": contract.policy_version_pin, "release": release},
    )  # fmt: skip


def _restored_at(run: Run) -> datetime | None:
    """The restore whose lost hours may hold this request, too: asked again, it is a new one to an older database."""
    fenced_at, demanded_at = anchored.fence_held_still()
    if demanded_at is not None or fenced_at is None:
        return demanded_at
    listed = listed_from(fenced_at, run.tenant_id, run.agent) or fenced_at
    over = max(listed, fenced_at + timedelta(seconds=env.read().VERIFY_FOR_S))
    return fenced_at if dbtime.now() < over else None


def _first_rows(run: Run, contract: Contract, files: Sequence[NewAttachment]) -> None:
    orders = contract.scope.order_ids or ()
    RunOrder.objects.bulk_create(
        [RunOrder(run=run, tenant_id=run.tenant_id, order_id=o) for o in dict.fromkeys(orders)]
    )
    accepted = NewEvent(
        type="run.accepted",
        meta={
            "request_id": run.request_id,
            "trace_id": run.trace_id,
            "agent": run.agent,
            "release": run.release,
            "tenant_id": run.tenant_id,
        },
        payload={"goal": contract.goal, "actor": contract.actor.model_dump(mode="json"), **_named(files)},
    )
    position = events.append(str(run.id), events.Position(seq=0, head=""), 1, [accepted])
    Run.objects.filter(id=run.id).update(last_seq=position.seq, chain_head=position.head)
    if files:
        attached.keep(run, files, None)
        attached.tell_run(run, files)


def _named(files: Sequence[NewAttachment]) -> Json:
    return {"attachments": [file.reference for file in files]} if files else {}


def append_input(
    run_id: str, *, kind: str, message_id: str, text: str, by: str, reason: str | None = None,
    files: Sequence[NewAttachment] = (),
) -> AppendedInput:  # fmt: skip
    """Leave a message, a cancel or a staff act for a run. The same (kind, message_id) twice is one input.

    `by` is `staff:USERNAME` for staff; `reason` is the slug of why, where there is one.
    Raises RunEnded where the run has ended and this input is new, TooManyFiles where it has no room for its files.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update().get(id=run_id)
        earlier = Input.objects.filter(run_id=run_id, kind=kind, message_id=message_id).first()
        if earlier is not None:
            return AppendedInput(seq=earlier.seq, new=False, status=run.status)
        if run.status in TERMINAL_VALUES:
            raise RunEnded(run.status)
        if files and attached.number(run) + len(files) > MAX_RUN_FILES:
            raise TooManyFiles(run_id)
        meta = {"kind": kind, "message_id": message_id, "by": by} | ({"reason": reason} if reason else {})
        said = clean.said(text, run.tenant_id, run.agent)
        seq = _append(run, meta, said, attached.cleaned(files, run.tenant_id, run.agent))
    return AppendedInput(seq=seq, new=True, status=run.status)


def _append(run: Run, meta: dict[str, str], text: str, files: Sequence[NewAttachment]) -> int:
    kind = meta["kind"]
    event = NewEvent(type=EVENT_OF[kind], meta=meta, payload={"text": text, **_named(files)})
    here = events.Position(seq=run.last_seq, head=run.chain_head)
    first = here.seq + 1
    happened = [event, *_voided(run, kind), *_alarming(run, kind, text)]
    position = events.append(str(run.id), here, run.version, happened)
    Input.objects.create(
        run=run, seq=first, kind=kind, message_id=meta["message_id"], text=text, by=meta["by"], at=clock.now()
    )
    attached.keep(run, files, first)
    _wake(run, position, first)
    return first


def _voided(run: Run, kind: str) -> tuple[NewEvent, ...]:
    """A customer's first message voids a waiting or granted approval in its own transaction (`write-path.md` 6)."""
    if kind != "message" or run.voids >= VOIDS_BY_MESSAGE or run.approval_id is None:
        return ()
    approval_id = queue.void(str(run.id), "customer_message")
    if approval_id is None:
        return ()
    return (NewEvent(type="approval.void", meta={"approval_id": approval_id, "reason": "customer_message"}),)


def _alarming(run: Run, kind: str, text: str) -> tuple[NewEvent, ...]:
    """Staff learn at once of words that need a person and reach a run whose write is under way (M116).

    Such a run is reconciled and ends with the truth; any other one is handed over by its next handler.
    """
    if kind != "message" or run.status not in WRITING_VALUES:
        return ()
    contract: object = run.contract  # what a broken row holds must not keep a customer from writing
    lists = precheck.stored(contract.get("sensitive")) if isinstance(contract, dict) else {}
    words = precheck.found([text], lists).person
    if not words:
        return ()
    telemetry.count("sensitive_messages")
    meta = {"to": "staff", "error": "sensitive_words"}
    return (NewEvent(type="words.found", meta=meta, payload={"words": list(words)}),)


def _wake(run: Run, position: events.Position, input_seq: int) -> None:
    due = "due_at" if run.status in NOT_WOKEN else dbtime.now_sql()
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE runs_run SET last_seq = %s, chain_head = %s, last_input_seq = %s, due_at = {due}, "
            f"enqueued_at = NULL, enqueue_tries = 0, updated_at = {dbtime.now_sql()} WHERE id = %s",
            [position.seq, position.head, input_seq, raw_id(str(run.id))],
        )


def same_message(run: Run, message_id: str, text: str, files: Sequence[NewAttachment]) -> bool:
    """Whether the message under this id says the same; one that was erased is compared with nothing."""
    stored = Input.objects.get(run=run, kind="message", message_id=message_id)
    # Both as the store keeps words now: it may have learned of a secret since.
    words = {clean.said(said, run.tenant_id, run.agent) for said in (stored.text, text)}
    if not stored.text or len(words) > 1:
        return not stored.text
    sent = [(f.name, f.media_type, f.sha256) for f in attached.cleaned(files, run.tenant_id, run.agent)]
    kept = attached.of_message(run.id, stored.seq)
    return sent == [(clean.said(name, run.tenant_id, run.agent)[:255], kind, sha) for name, kind, sha in kept]


def feedback(run_id: str, rating: str, text: str) -> None:
    """The customer's thumb and word; the last one stands."""
    with transaction.atomic():
        # Held: an erasure comes before, and is opened again, or after, and takes these words too.
        run = Run.objects.select_for_update(of=("self",)).only("tenant_id", "agent").get(id=run_id)
        said = clean.said(text, run.tenant_id, run.agent)
        if said:  # new words, erased by their own time
            Run.objects.filter(id=run_id, conversation_erased_at__isnull=False).update(conversation_erased_at=None)
        Feedback.objects.update_or_create(run_id=run_id, defaults={"rating": rating, "text": said, "at": clock.now()})
