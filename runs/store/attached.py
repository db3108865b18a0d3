"""Keeps the files that come with a request or a message, and tells of them by reference. Part of the store.

A row is written in the transaction of what it came with. Its content is read where it is handed out, nowhere else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from agentsite import clock
from agentsite.canonical import sha256
from runs.attachments import SOURCE, NewAttachment
from runs.models import Attachment, Observation, Run
from runs.store import clean
from tools.contracts import Json

FIELDS = ("name", "media_type", "size", "sha256")


def cleaned(files: Sequence[NewAttachment], tenant_id: str, agent: str) -> tuple[NewAttachment, ...]:
    """The files under names without secrets."""
    return tuple(replace(file, name=clean.said(file.name, tenant_id, agent)[:255]) for file in files)


def keep(run: Run, files: Sequence[NewAttachment], input_seq: int | None) -> None:
    """Write the rows, in the caller's transaction. `input_seq` is the message's, None for the request's own."""
    now = clock.now()
    Attachment.objects.bulk_create(
        [
            Attachment(
                run=run, tenant_id=run.tenant_id, input_seq=input_seq, position=position, name=file.name,
                media_type=file.media_type, sha256=file.sha256, size=len(file.content), content=file.content, at=now,
            )
            for position, file in enumerate(files)
        ]
    )  # fmt: skip


def tell_run(run: Run, files: Sequence[NewAttachment]) -> None:
    """The first thing a run is told: which files its request came with; the model is shown no more of them."""
    content: Json = {"with": "request", "attachments": [file.reference for file in files]}
    Observation.objects.create(
        run=run, obs_id="obs_1", position=1, kind="notice", source=SOURCE, content=content,
        content_hash=sha256(content), fetched_at=run.created_at,
    )  # fmt: skip


def number(run: Run) -> int:
    """How many files came with a run and its messages."""
    return Attachment.objects.filter(run=run).count()


def references(run_id: UUID, seqs: Sequence[int]) -> dict[int, tuple[Json, ...]]:
    """The files of these messages by reference, under each message's sequence number."""
    found: dict[int, list[Json]] = defaultdict(list)
    rows = Attachment.objects.filter(run_id=run_id, input_seq__in=seqs).order_by("input_seq", "position")
    for row in rows.values("input_seq", *FIELDS):
        found[row.pop("input_seq")].append(row)
    return {seq: tuple(files) for seq, files in found.items()}


def of_message(run_id: UUID, seq: int) -> tuple[tuple[str, str, str], ...]:
    """(name, media type, hash) of a message's files, in their order: what makes it the same message again."""
    rows = Attachment.objects.filter(run_id=run_id, input_seq=seq).order_by("position")
    return tuple(rows.values_list("name", "media_type", "sha256"))
