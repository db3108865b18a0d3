"""Erases what people, models and systems wrote in an ended run, class by class, under a tombstone. Part of the store.

Ids, keys, amounts, hashes, times, decisions and the audit chain stay: an event loses payload and salt and keeps digest
and MAC. One transaction a run; what dies half-way is done again. Imports no zone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from agentsite import dbtime, redaction
from agentsite.text import storable
from approvals import erasing as asked
from runs.contracts import Actor, Contract, NewEvent
from runs.errors import RunError
from runs.models import OPEN_WRITES, Attachment, Draft, Event, Feedback, Input, Observation, Run, Turn, Webhook, Write
from runs.states import TERMINAL
from runs.store import archived, events, recalled
from runs.story import OUR_REFUNDS, RECORDS

Kind = Literal["conversation", "evidence"]
CONVERSATION: Kind = "conversation"
EVIDENCE: Kind = "evidence"
KINDS: tuple[Kind, ...] = (CONVERSATION, EVIDENCE)
TOMBSTONE = "data.erased"
ERASED = "[erased]"
GONE = {"erased": True}
UNREADABLE_TURN: dict[str, Any] = {"proposals": [], "final": None, "error": None}
MAX_WHY = 200
ENDED = sorted(status.value for status in TERMINAL)
NEEDED = ("status", "version", "last_seq", "chain_head", "conversation_erased_at", "evidence_erased_at")
# What a class leaves to the other one; a payload or a source that stands in neither list goes with whichever is first.
NO_EVIDENCE = frozenset({
    "run.accepted", "message.received", "cancel.requested", "words.found", "customer.told", "customer.asked",
    "model.escalated", "reply.sent", "run.resolved", "run.hurried", "approval.decided", "approval.void",
})  # fmt: skip
NO_CONVERSATION = frozenset({
    "prompt.built", "model.called", "evidence.found", "tool.observed", "approval.requested", "write.intent",
    "write.sent", "write.result", "write.unknown", "write.reconciled", "write.released_again", "write.verified",
    "write.mismatch", "write.looked",
})  # fmt: skip
READ_FROM_RECORDS = (*RECORDS, OUR_REFUNDS, "search_policy")
TO_PEOPLE = frozenset({"message", "ask", "plan", "escalate"})


class StillNeeded(RunError):
    """The run cannot be erased yet; `slug` says why: live, write_open, refund_watched or webhook_due."""

    def __init__(self, slug: str) -> None:
        super().__init__(slug)
        self.slug = slug


def erase(run_id: str, kinds: Sequence[Kind], *, why: str, by: str) -> tuple[Kind, ...]:
    """Erase these classes of an ended run; returns those that were still kept. `why` is words of ours, no name.

    Raises StillNeeded; then nothing changed.
    """
    with transaction.atomic():
        # Only what is needed: a column that nobody can read is erased like any other.
        run = Run.objects.select_for_update(of=("self",)).only(*NEEDED).get(id=run_id)
        stops = obstacle(run)
        if stops is not None:
            raise StillNeeded(stops)
        at, kept = dbtime.now(), tuple(kind for kind in kinds if _erased_at(run, kind) is None)
        for kind in kept:
            columns = _of_conversation(run) if kind == CONVERSATION else _of_evidence(run)
            _payloads(run, kind)
            archived.forget(run_id, kind)
            tomb = NewEvent(type=TOMBSTONE, meta={"class": kind, "why": storable(why)[:MAX_WHY], "by": by})
            events.note(run, [tomb], **columns, **{f"{kind}_erased_at": at})
        if kept:
            recalled.forget(run_id)
    return kept


def _erased_at(run: Run, kind: Kind) -> datetime | None:
    return run.conversation_erased_at if kind == CONVERSATION else run.evidence_erased_at


def obstacle(run: Run) -> str | None:
    """Why a run may not be erased yet, or None: it lives, money of it may move, or a client is not told of it yet."""
    if run.status not in ENDED:
        return "live"
    if Write.objects.filter(run=run, state__in=OPEN_WRITES).exists():
        return "write_open"
    if Write.objects.filter(run=run, watch_at__isnull=False).exists():
        return "refund_watched"
    return "webhook_due" if Webhook.objects.filter(run=run, due_at__isnull=False).exists() else None


def erasable(kind: Kind, *, before: datetime, tenant_id: str | None, agent: str | None) -> QuerySet[Run]:
    """Runs that ended before then, nothing stands in whose way and whose class is still kept, the oldest first."""
    mine = {"run": OuterRef("pk")}
    busy = Write.objects.filter(Q(state__in=OPEN_WRITES) | Q(watch_at__isnull=False), **mine)
    untold = Webhook.objects.filter(due_at__isnull=False, **mine)
    which = {f"{kind}_erased_at": None, "status__in": ENDED, "completed_at__lt": before}
    rows = Run.objects.filter(~Exists(busy), ~Exists(untold), **which, **_narrowed(tenant_id, agent))
    return rows.order_by("completed_at", "id")


def _narrowed(tenant_id: str | None, agent: str | None, run: str = "") -> dict[str, str]:
    asked_for = {"tenant_id": tenant_id, f"{run}agent": agent}
    return {name: value for name, value in asked_for.items() if value is not None}


def of_customer(tenant_id: str, customer_id: str) -> list[tuple[str, str]]:
    """(run, request) of every run of a customer, the oldest first."""
    rows = Run.objects.filter(tenant_id=tenant_id, customer_id=customer_id).order_by("created_at", "id")
    return [(str(run_id), request_id) for run_id, request_id in rows.values_list("id", "request_id")]


# --- what the customer and we said to each other ---------------------------------------------------------------


def _of_conversation(run: Run) -> dict[str, object]:
    Input.objects.filter(run=run).update(text="")
    Feedback.objects.filter(run=run).update(text="")
    Attachment.objects.filter(run=run).update(content=None, name=ERASED)
    Draft.objects.filter(run=run).delete()
    read = Q(source__in=READ_FROM_RECORDS, kind__in=("result", "error", "denial"))
    _observations(Observation.objects.filter(run=run).exclude(read))
    _turns(run, lambda proposal: proposal["tool"] in TO_PEOPLE)
    asked.erase_words(str(run.id))
    return {"contract": asked.readable(_request, run, GONE), "reply": None, "callback_url": ""}


def _request(run: Run) -> dict[str, Any]:
    """The contract with ids, grants and limits alone."""
    contract = run.contract
    kept = {name: value for name, value in contract.items() if name in Contract.model_fields}
    actor = contract.get("actor")
    known = {n: v for n, v in actor.items() if n in Actor.model_fields} if isinstance(actor, dict) else None
    if known and known.get("channel"):
        known["channel"] = ERASED
    files = [{**f, "name": ERASED} for f in contract.get("attachments") or [] if isinstance(f, dict)]
    more = ({"actor": known} if known else {}) | ({"attachments": files} if files else {})
    return {**kept, **more, "goal": ERASED}


# --- what it was decided by ------------------------------------------------------------------------------------


def _of_evidence(run: Run) -> dict[str, object]:
    _observations(Observation.objects.filter(run=run))
    _turns(run, lambda proposal: True)
    for key in Write.objects.filter(run=run).values_list("key", flat=True):
        rows = Write.objects.filter(key=key)
        rows.update(args=asked.readable(_without_reason, rows, asked.NO_ARGS), body="")
    asked.erase_facts(str(run.id))
    return {"pending_action": asked.readable(_pending, run, None)}


def _without_reason(rows: QuerySet[Write]) -> dict[str, Any]:
    return asked.unreasoned(rows.only("args").get().args)


def _pending(run: Run) -> dict[str, Any] | None:
    action = run.pending_action
    return {**action, "args": asked.unreasoned(action["args"])} if action else None


def _observations(rows: QuerySet[Observation]) -> None:
    rows.update(args={}, content=GONE, meta=GONE)


def _unsaid(proposal: dict[str, Any]) -> dict[str, Any]:
    return {**proposal, "args": {"erased": ERASED}}


def _turns(run: Run, says: Callable[[dict[str, Any]], bool]) -> None:
    """What a model answered goes, with the arguments of the proposals that say something; the others stay."""
    for pk in Turn.objects.filter(run=run).values_list("pk", flat=True):
        rows = Turn.objects.filter(pk=pk)
        rows.update(raw="", **asked.readable(partial(_turn, says), rows, UNREADABLE_TURN))


def _turn(says: Callable[[dict[str, Any]], bool], rows: QuerySet[Turn]) -> dict[str, Any]:
    turn = rows.defer("raw").get()
    return {
        "proposals": [_unsaid(p) if says(p) else dict(p) for p in turn.proposals],
        "final": {"text": ERASED, "evidence": turn.final["evidence"]} if turn.final else None,
        "error": {"error": redaction.text(str(turn.error.get("error", "")))} if turn.error else None,
    }


def _payloads(run: Run, kind: Kind) -> None:
    """Payload and salt go; a digest without its salt tells nothing of short words."""
    spared = NO_CONVERSATION if kind == CONVERSATION else NO_EVIDENCE
    rows = Event.objects.filter(run=run, payload__isnull=False).exclude(type__in=spared)
    if kind == CONVERSATION:
        rows = rows.exclude(pk__in=_without_words(rows.filter(type="gate.decided")))
    rows.update(payload=None, salt=None)


def _without_words(decided: QuerySet[Event]) -> list[int]:
    """Decisions of the gate that quote nothing the customer wrote; of one that nobody can read, nobody knows."""
    return [pk for pk in decided.values_list("pk", flat=True) if asked.readable(_quotes_nothing, pk, False)]


def _quotes_nothing(pk: int) -> bool:
    return quotes_nothing(Event.objects.only("payload").get(pk=pk).payload)


def quotes_nothing(decided: dict[str, Any]) -> bool:
    """Whether the payload of a decision of the gate holds no word of the customer's."""
    return not any(asked.quotes(check) for check in decided.get("checks", ()))


# --- deliveries ------------------------------------------------------------------------------------------------


def told(*, before: datetime, tenant_id: str | None, agent: str | None) -> QuerySet[Webhook]:
    """Webhooks of ended runs, made before then and delivered or given up; each with its log of deliveries."""
    rows = Webhook.objects.filter(created_at__lt=before, due_at=None, run__status__in=ENDED)
    return rows.filter(**_narrowed(tenant_id, agent, run="run__"))


def drop_webhooks(ids: Sequence[str]) -> None:
    """Webhooks with their logs of deliveries are gone; one that is due again meanwhile stays."""
    Webhook.objects.filter(pk__in=ids, due_at=None).delete()


def drop_webhooks_of(run_id: str) -> int:
    """The same, of one run; how many there were."""
    ids = list(Webhook.objects.filter(run_id=run_id, due_at=None).values_list("pk", flat=True))
    drop_webhooks(ids)
    return len(ids)
