"""Notes of archived runs: which rows have their texts in which file, and the keys that open it. Part of the store.

A note is signed with the audit key, so that nobody who can only write to the database takes a payload away and calls
it archived. Imports no zone.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from agentsite import clock
from agentsite.canonical import canonical
from runs.models import Archive
from runs.store.events import signing_key

WRITES = "write."
KEPT = frozenset({"reply.sent", "approval.decided", "run.resolved"})
"""Types of events whose payload stays with the run, beside those of writes: what was done with the money, what people
decided, what the customer was told."""
STAYS = Q(type__in=KEPT) | Q(type__startswith=WRITES)


def stays(type_: str) -> bool:
    """Whether the payload of such an event is never archived."""
    return type_ in KEPT or type_.startswith(WRITES)


@dataclass(frozen=True, kw_only=True)
class Note:
    """Where a run's texts lie: `sha256` and `size` (bytes) are its line's in the file. An erased key is empty."""

    run_id: str
    file: str
    folder: str
    sha256: str
    size: int
    last_seq: int
    at: datetime
    conversation_key: str
    evidence_key: str

    @property
    def keys(self) -> dict[str, str]:
        """The keys that are left, by part."""
        return part_keys(self.conversation_key, self.evidence_key)


def part_keys(conversation: str, evidence: str) -> dict[str, str]:
    """What opens each part, an empty key none: what an erasure of either class takes needs both."""
    both = hashlib.sha256(f"{conversation}/{evidence}".encode()).hexdigest() if conversation and evidence else ""
    found = {"conversation": conversation, "evidence": evidence, "either": both}
    return {part: key for part, key in found.items() if key}


def signed(note: Note) -> dict[str, object]:
    """What the MAC of a note covers. `runs.audit.links` computes it again."""
    return {
        "kind": "archive", "run": note.run_id, "file": note.file, "sha256": note.sha256, "last_seq": note.last_seq,
        "at": clock.rfc3339(note.at),
    }  # fmt: skip


def keep(note: Note) -> None:
    """Write the note, in the transaction that takes the texts out of the rows."""
    key_id, secret = signing_key()
    Archive.objects.create(
        run_id=UUID(note.run_id), file=note.file, folder=note.folder, sha256=note.sha256, size=note.size,
        last_seq=note.last_seq, at=note.at, conversation_key=note.conversation_key, evidence_key=note.evidence_key,
        key_id=key_id, mac=hmac.digest(secret, canonical(signed(note)), "sha256").hex(),
    )  # fmt: skip


def of_run(run_id: str) -> Note | None:
    """The note of an archived run; None where its texts are in its rows."""
    row = Archive.objects.filter(run_id=UUID(run_id)).first()
    return _note(row) if row is not None else None


def _note(row: Archive) -> Note:
    return Note(
        run_id=str(row.run_id), file=row.file, folder=row.folder, sha256=row.sha256, size=row.size,
        last_seq=row.last_seq, at=row.at, conversation_key=row.conversation_key, evidence_key=row.evidence_key,
    )  # fmt: skip


def forget(run_id: str, kind: str) -> None:
    """What the archive holds of a class (`conversation` or `evidence`) can be read by nobody from this commit on.

    Within the transaction that erases the run and holds its row; a note that opens nothing any more goes.
    """
    mine = Archive.objects.filter(run_id=UUID(run_id))
    mine.update(**{f"{kind}_key": ""})
    mine.filter(conversation_key="", evidence_key="").delete()


def drop(run_id: str) -> None:
    """The run is archived no more, in the transaction that puts its texts back."""
    Archive.objects.filter(run_id=UUID(run_id)).delete()


def named(files: list[str]) -> frozenset[str]:
    """Those of these files that a note still names."""
    return frozenset(Archive.objects.filter(file__in=files).values_list("file", flat=True))
