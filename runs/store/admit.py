"""Creates runs and appends what doors leave for them. Part of the store; imports no zone.

A door's input and its event are one transaction. An input takes a sequence number and leaves the version alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

import orjson
from django.db import connection, transaction

from agentsite import clock, dbtime, env, statements, telemetry
from agentsite.canonical import canonical, canonical_text
from approvals import queue
from runs import precheck
from runs.attachments import MAX_RUN_FILES, NewAttachment
from runs.contracts import Contract, NewEvent
from runs.errors import RunEnded, TooManyFiles
from runs.models import Feedback, Input, Run
from runs.states import TERMINAL, WRITING, Status
from runs.store import anchored, attached, clean, events, inserts, left, outbox
from runs.store.inserts import Statement
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


# What an admission has to know: the run of this request, where there is one, and the tenant's profile in force.
LOOK = (
    "SELECT r.id, r.body_hash, p.revision, CAST(p.document AS text), t.shadow FROM (SELECT 1 AS one) AS once "
    "LEFT JOIN runs_run r ON r.tenant_id = %s AND r.request_id = %s LEFT JOIN tenants_tenant t ON t.id = %s "
    "LEFT JOIN tenants_agentprofile p ON p.tenant_id = t.id AND p.agent = %s AND p.revision = "
    "(SELECT MAX(revision) FROM tenants_agentprofile n WHERE n.tenant_id = t.id AND n.agent = %s)"
)
STARTED = ("status_since", "due_at", "enqueued_at", "created_at", "updated_at")
"""Columns of a new run that hold the moment of its admission, by the database's clock."""


@dataclass(frozen=True, kw_only=True)
class Created:
    """`row`: of a run that was made just now, as its transaction left it; None of one that was there."""

    run_id: str
    new: bool
    body_hash: str
    row: Run | None = None


@dataclass(frozen=True, kw_only=True)
class Before:
    """What stands before a request is admitted. `document`: the profile in force, as text; None: no such agent."""

    known: Created | None
    document: str | None
    revision: int
    shadow: bool


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
        try:
            _begin(run, contract, files)
            return Created(run_id=str(run.id), new=True, body_hash=body_hash, row=run)
        except _Known:  # nothing was written
            stored = Run.objects.values("id", "body_hash").get(tenant_id=run.tenant_id, request_id=run.request_id)
    return Created(run_id=str(stored["id"]), new=False, body_hash=stored["body_hash"])


class _Known(Exception):
    """There is a run of this request."""


def before(tenant_id: str, request_id: str, agent: str) -> Before:
    """All that an admission looks at, by one statement."""
    with statements.cursor() as cursor:
        cursor.execute(LOOK, [tenant_id, request_id, tenant_id, agent, agent])
        run_id, body_hash, revision, document, shadow = cursor.fetchone()
    known = Created(run_id=str(UUID(str(run_id))), new=False, body_hash=body_hash) if run_id is not None else None
    return Before(known=known, document=document, revision=revision or 0, shadow=bool(shadow))


def _insert_with(run: Run, rows: Sequence[Statement]) -> None:
    """Insert the run and, where it was the first of its request, its first rows. Its times are the database's, as they
    are stored. Raises _Known."""
    fields = [f for f in Run._meta.concrete_fields if f.attname not in STARTED and not f.generated]
    values = [field.get_db_prep_save(getattr(run, field.attname), connection) for field in fields]
    made = Statement(sql=_insert(tuple(field.column for field in fields), connection.vendor), params=values)
    found = inserts.run_alone(rows, made) if inserts.stands_alone() else inserts.run_first(made, rows)
    if found is None:
        raise _Known
    for name, moment in zip(STARTED, found, strict=True):
        setattr(run, name, dbtime.moment(moment))


@lru_cache(maxsize=4)
def _insert(columns: tuple[str, ...], vendor: str) -> str:
    # On SQLite a time is a text, and pages are cut by comparing it: it has to have the very form that Django writes.
    now = dbtime.now_sql() if vendor == "postgresql" else f"replace({dbtime.now_sql()} || '000', '.000000', '')"
    names = ", ".join(f'"{name}"' for name in (*columns, *STARTED))
    values = ", ".join([*("%s" for _ in columns), *(now for _ in STARTED)])
    return (
        f"INSERT INTO runs_run ({names}) VALUES ({values}) ON CONFLICT (tenant_id, request_id) DO NOTHING "
        f"RETURNING {', '.join(STARTED)}"
    )


def _new_run(contract: Contract, body_hash: str, callback_url: str, release: str) -> Run:
    return Run(
        tenant_id=contract.tenant_id, request_id=contract.request_id, body_hash=body_hash,
        trace_id=contract.trace_id, agent=contract.agent, customer_id=contract.actor.customer_id,
        contract=orjson.loads(canonical(contract.model_dump(mode="json"))), schema=contract.schema_version,
        release=release, created_by=contract.created_by, callback_url=callback_url, status=Status.ACCEPTED.value,
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


def _begin(run: Run, contract: Contract, files: Sequence[NewAttachment]) -> None:
    """The run with its first rows, its place in its own record among its columns. Raises _Known."""
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
    orders = inserts.orders(str(run.id), run.tenant_id, tuple(dict.fromkeys(contract.scope.order_ids or ())))

    def begin(ends: Sequence[events.Position], rows: Sequence[Statement]) -> left.Rows:
        run.last_seq, run.chain_head = ends[-1].seq, ends[-1].head
        _insert_with(run, [*orders, *rows])
        telemetry.know(str(run.id), run.trace_id, run.tenant_id, run.request_id)
        outbox.know(str(run.id), run.callback_url)
        return {"run": {name: getattr(run, name) for name in left.RUN}, "versions": canonical_text(run.versions)}

    events.move(str(run.id), events.Position(seq=0, head=""), [(1, [accepted])], begin)
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
    with statements.cursor() as cursor:
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
