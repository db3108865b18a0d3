"""Takes the bulky texts of ended runs out of their rows once they lie in an archive, and puts them back. Part of the
store; imports no zone, and knows no file.

What goes: payloads and salts of events (but for those of writes, decisions and replies), raw answers of models, the
words around the facts that were read, contents of files, drafts of dead workers. Rows, keys, hashes, the chain, the
facts that the customer's texts are made of and everything a request is recognised by stay.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, get_args
from uuid import UUID

from django.db import transaction
from django.db.models import Case, Count, Exists, F, OuterRef, Q, QuerySet, Sum, TextField, Value, When
from django.db.models.functions import Cast

from agentsite import dbtime, env
from approvals.erasing import readable
from approvals.models import Notice
from runs.models import OPEN_WRITES, Attachment, Draft, Event, Observation, Run, Shadow, Turn, Webhook, Write
from runs.store import archived, bones, erasing
from runs.store.archived import Note

Part = Literal["conversation", "evidence", "either"]
PARTS: tuple[Part, ...] = get_args(Part)
"""By which erasure takes it: that of the one class, of the other, or whichever comes first."""
Table = dict[str, list[list[Any]]]
MAY = ""


class Refused(ValueError):
    """What an archive holds does not fit its run; the words name the field."""


@dataclass(frozen=True, kw_only=True)
class Bulk:
    """The bulky texts of a run as they stood, by part and table; equal to another one where nothing changed."""

    run_id: str
    last_seq: int
    parts: Mapping[Part, Table]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where in the order of ends a run stands."""

    ended_at: datetime
    run_id: UUID


# --- which runs ------------------------------------------------------------------------------------------------


def due(before: datetime, tenant_id: str | None, after: Place | None, most: int) -> list[Place]:
    """Runs that ended before then and may be archived, the oldest first, from the one after `after` on."""
    rows = _candidates(before, tenant_id).annotate(stop=_stop()).filter(stop=MAY).order_by("completed_at", "id")
    if after is not None:
        later = Q(completed_at=after.ended_at, id__gt=after.run_id)
        rows = rows.filter(Q(completed_at__gt=after.ended_at) | later)
    return [Place(ended_at=at, run_id=pk) for at, pk in rows.values_list("completed_at", "id")[:most] if at]


def counted(before: datetime, tenant_id: str | None) -> dict[str, int]:
    """How many runs that ended before then may be archived (under ""), and how many not, by the first reason."""
    rows = _candidates(before, tenant_id).annotate(stop=_stop()).order_by().values("stop").annotate(number=Count("pk"))
    return dict(rows.values_list("stop", "number"))


def _candidates(before: datetime, tenant_id: str | None) -> QuerySet[Run]:
    """Runs that ended before then and have their texts in their rows."""
    kept = Q(conversation_erased_at=None) | Q(evidence_erased_at=None)
    rows = Run.objects.filter(kept, status__in=erasing.ENDED, completed_at__lt=before, archive__isnull=True)
    return rows if tenant_id is None else rows.filter(tenant_id=tenant_id)


def _stop() -> Case:
    """Why a run is left alone: the first reason there is, or ""."""
    mine = {"run": OuterRef("pk")}
    noticed = {"approval__run_id": OuterRef("pk"), "due_at__isnull": False}
    followed = dbtime.now() - timedelta(days=env.read().CUSTOMER_LINK_DAYS)
    return Case(
        When(Exists(Write.objects.filter(state__in=OPEN_WRITES, **mine)), then=Value("write_open")),
        When(Exists(Write.objects.filter(watch_at__isnull=False, **mine)), then=Value("refund_watched")),
        When(last_input_seq__gt=F("folded_input_seq"), then=Value("input_unread")),
        When(Exists(Webhook.objects.filter(due_at__isnull=False, **mine)), then=Value("webhook_due")),
        When(Exists(Notice.objects.filter(**noticed)), then=Value("notice_due")),
        When(Exists(Shadow.objects.filter(compare_at__isnull=False, **mine)), then=Value("compare_due")),
        When(created_at__gte=followed, then=Value("customer_link")),
        default=Value(MAY), output_field=TextField(),
    )  # fmt: skip


# --- what of a run goes ----------------------------------------------------------------------------------------


def read(run_ids: Sequence[str]) -> list[Bulk]:
    """The bulky texts of these runs as they are stored; one without any, or whose rows nobody can read, is left out."""
    heads = {str(pk): seq for pk, seq in Run.objects.filter(pk__in=run_ids).values_list("pk", "last_seq")}
    rows = _Rows(list(heads))
    found = (readable(partial(_bulk, rows), (run_id, heads[run_id]), None) for run_id in run_ids if run_id in heads)
    return [bulk for bulk in found if bulk is not None]


class _Rows:
    """The rows of several runs that hold such texts, by run, each table read in one statement."""

    def __init__(self, run_ids: Sequence[str]) -> None:
        ids = {"run_id__in": run_ids}
        told = Event.objects.filter(payload__isnull=False, **ids).exclude(archived.STAYS).order_by("seq")
        turns = Turn.objects.filter(**ids).exclude(raw="").order_by("number")
        seen = Observation.objects.filter(kind="result", source__in=bones.SOURCES, **ids).order_by("position")
        files = Attachment.objects.filter(content__isnull=False, **ids).order_by("pk")
        text = Cast(F("payload"), TextField())
        self.events = _by_run(told.annotate(text=text).values_list("run", "seq", "type", "digest", "salt", "text"))
        self.turns = _by_run(turns.values_list("run", "number", "raw"))
        text = Cast(F("content"), TextField())
        self.observations = _by_run(seen.annotate(text=text).values_list("run", "obs_id", "source", "text"))
        self.files = _by_run(files.values_list("run", "pk", "content"))
        self.drafts = _by_run(Draft.objects.filter(**ids).values_list("run", "route", "thinking", "text", "at"))


def _by_run(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for run_id, *row in rows:
        found[str(run_id)].append(tuple(row))
    return found


def _bulk(rows: _Rows, head: tuple[str, int]) -> Bulk | None:
    """Raises ValueError where a payload is not the one that was signed: an archive would hide that."""
    run_id, last_seq = head
    parts: dict[Part, Table] = {name: defaultdict(list) for name in PARTS}
    for seq, type_, digest, salt, text in rows.events[run_id]:
        if digest != _digest(salt, text):
            raise ValueError(f"event {seq} is not as it was written")
        parts[_part(type_, text)]["events"].append([seq, text, salt])
    for number, raw in rows.turns[run_id]:
        parts["either"]["turns"].append([number, raw])
    for obs_id, source, text in rows.observations[run_id]:
        if bones.of(source, text) is not None:
            parts["evidence"]["observations"].append([obs_id, text])
    for pk, content in rows.files[run_id]:
        parts["conversation"]["files"].append([str(pk), b64encode(bytes(content)).decode()])
    for *said, at in rows.drafts[run_id]:
        parts["conversation"]["drafts"].append([*said, at.isoformat()])
    return Bulk(run_id=run_id, last_seq=last_seq, parts=parts) if any(parts.values()) else None


def _digest(salt: Any, text: Any) -> str:
    return hashlib.sha256(f"{salt}{text}".encode("utf-8", "replace")).hexdigest()


def _part(type_: str, text: str) -> Part:
    """The part of an event's payload: as an erasure of its row would take it."""
    if type_ in erasing.NO_EVIDENCE:
        return "conversation"
    quotes = type_ == "gate.decided" and not erasing.quotes_nothing(json.loads(text))
    return "evidence" if type_ in erasing.NO_CONVERSATION or (type_ == "gate.decided" and not quotes) else "either"


def size_of_files(run_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Bytes of the files that came with each of these runs, of those that have any."""
    rows = Attachment.objects.filter(run_id__in=run_ids, content__isnull=False).values("run_id").order_by()
    return dict(rows.annotate(size=Sum("size")).values_list("run_id", "size"))


# --- out of the rows -------------------------------------------------------------------------------------------


def move(held: Sequence[tuple[Bulk, Note]], before: datetime) -> frozenset[str]:
    """Take these texts out of their rows and note where they lie, in one transaction; the runs that were.

    A run that changed since it was read, that somebody else archived or that may no longer be archived is left alone.
    """
    with transaction.atomic():
        ids = [bulk.run_id for bulk, _ in held]
        locked = Run.objects.select_for_update(of=("self",), no_key=True).filter(pk__in=ids).order_by("pk")
        list(locked.values_list("pk", flat=True))
        free = _candidates(before, None).annotate(stop=_stop()).filter(pk__in=ids, stop=MAY)
        now = {bulk.run_id: bulk for bulk in read([str(pk) for pk in free.values_list("pk", flat=True)])}
        same = [(bulk, note) for bulk, note in held if now.get(bulk.run_id) == bulk]
        _empty([bulk for bulk, _ in same])
        for _, note in same:
            archived.keep(note)
    return frozenset(bulk.run_id for bulk, _ in same)


def _empty(bulks: Sequence[Bulk]) -> None:
    ids = {"run_id__in": [bulk.run_id for bulk in bulks]}
    Event.objects.filter(payload__isnull=False, **ids).exclude(archived.STAYS).update(payload=None, salt=None)
    Turn.objects.filter(**ids).exclude(raw="").update(raw="")
    Attachment.objects.filter(content__isnull=False, **ids).update(content=None)
    Draft.objects.filter(**ids).delete()
    texts = {(b.run_id, o): text for b in bulks for o, text in b.parts["evidence"].get("observations", ())}
    rows = Observation.objects.filter(kind="result", source__in=bones.SOURCES, **ids)
    left = [
        Observation(pk=pk, content=bones.of(source, texts[str(run_id), obs_id]))
        for pk, run_id, obs_id, source in rows.values_list("pk", "run_id", "obs_id", "source")
        if (str(run_id), obs_id) in texts
    ]
    Observation.objects.bulk_update(left, ["content"], batch_size=100)


# --- and back --------------------------------------------------------------------------------------------------


def put_back(note: Note, parts: Mapping[Part, Table]) -> None:
    """Every text in these parts stands in its row again as it did, and the note is gone, in one transaction.

    Raises Refused where a row is not the one it was taken from; then nothing changed.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",), no_key=True).only("pk").get(pk=note.run_id)
        if archived.of_run(note.run_id) != note:
            raise Refused(f"run {note.run_id}: archived otherwise meanwhile")
        for tables in parts.values():
            _events_back(run, tables.get("events", ()))
            for number, raw in tables.get("turns", ()):
                Turn.objects.filter(run=run, number=number, raw="").update(raw=raw)
            _observations_back(run, tables.get("observations", ()))
            _files_back(run, tables.get("files", ()))
            for route, thinking, text, at in tables.get("drafts", ()):
                Draft.objects.create(run=run, route=route, thinking=thinking, text=text, at=datetime.fromisoformat(at))
        archived.drop(note.run_id)


def _events_back(run: Run, rows: Sequence[Sequence[Any]]) -> None:
    empty = Event.objects.filter(run=run, payload=None, salt=None, seq__in=[seq for seq, _, _ in rows])
    stand = {seq: (pk, digest) for seq, pk, digest in empty.values_list("seq", "pk", "digest")}
    back = []
    for seq, text, salt in rows:
        pk, digest = stand.get(seq, (0, ""))
        if digest != _digest(salt, text):
            raise Refused(f"run {run.pk}: events[{seq}].payload is not the one whose digest the row holds")
        back.append(Event(pk=pk, payload=_as_it_was(text), salt=salt))
    Event.objects.bulk_update(back, ["payload", "salt"], batch_size=100)


def _as_it_was(text: str) -> Value:
    """Stored text, written as it is and not as canonical JSON made anew."""
    return Value(text, output_field=TextField())


def _observations_back(run: Run, rows: Sequence[Sequence[Any]]) -> None:
    seen = Observation.objects.filter(run=run, obs_id__in=[obs_id for obs_id, _ in rows])
    stand = {obs_id: (pk, content) for obs_id, pk, content in seen.values_list("obs_id", "pk", "content")}
    back = []
    for obs_id, text in rows:
        pk, content = stand.get(obs_id, (0, None))
        if not isinstance(content, dict) or content.get(bones.MARK) is not True:
            raise Refused(f"run {run.pk}: observations[{obs_id}].content does not stand in its row as it was left")
        back.append(Observation(pk=pk, content=_as_it_was(text)))
    Observation.objects.bulk_update(back, ["content"], batch_size=100)


def _files_back(run: Run, rows: Sequence[Sequence[Any]]) -> None:
    for pk, encoded in rows:
        if Attachment.objects.filter(run=run, pk=pk, content=None).update(content=b64decode(encoded)) != 1:
            raise Refused(f"run {run.pk}: files[{pk}].content has no row that it was taken from")
