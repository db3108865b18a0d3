"""The registry's word on what is current, read from rows at the moment it is asked. Never imports runs.

A text's own words, an index and a file's name say nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from datetime import date
from typing import Any, NamedTuple

from agentsite import clock, statements
from agentsite.tenants.profiles import POLICY_PIN
from tools.contracts import PassageRef, PolicyState
from tools.policy.documents import in_effect

CURRENT = (
    "SELECT d.doc_id, d.version, d.effective_from, d.effective_until, '' FROM tools_policydocument d "
    "WHERE d.tenant_id = %s AND d.status = 'current' AND d.doc_id IN ({docs})"
)
WITH_TEXTS = (
    "SELECT d.doc_id, d.version, d.effective_from, d.effective_until, p.content_hash FROM tools_policydocument d "
    "LEFT JOIN tools_policypassage p ON p.document_id = d.id AND p.content_hash IN ({texts}) "
    "WHERE d.tenant_id = %s AND d.status = 'current' AND d.doc_id IN ({docs})"
)


def policy_state(tenant_id: str, pin: str, rests_on: Sequence[PassageRef] = ()) -> PolicyState:
    """The pinned document and version, the version in effect now (None where there is none), and which of these
    passages no version in effect has any more. Raises ValueError."""
    doc, version = split_pin(pin)
    texts = sorted({ref.content_hash for ref in rests_on})
    current = _in_effect(tenant_id, {doc, *(ref.doc for ref in rests_on)}, texts)
    found = current.get(doc)
    return PolicyState(
        doc=doc, pinned=version, current=found.version if found else None,
        superseded=_superseded(current, rests_on),
    )  # fmt: skip


def split_pin(pin: str) -> tuple[str, int]:
    """`POL-REF-004@v4` as document and version. Raises ValueError."""
    if not POLICY_PIN.fullmatch(pin):
        raise ValueError("a pin looks like POL-REF-004@v4")
    doc, _, version = pin.rpartition("@v")
    return doc, int(version)


class _Version(NamedTuple):
    """A current version, and which of the texts asked about are passages of it."""

    doc_id: str
    version: int
    effective_from: date | None
    effective_until: date | None
    passages: set[str]
    status: str = "current"


def _in_effect(tenant_id: str, docs: set[str], texts: Sequence[str]) -> dict[str, _Version]:
    found: dict[str, _Version] = {}
    sql = WITH_TEXTS if texts else CURRENT
    with statements.cursor() as cursor:
        cursor.execute(sql.format(docs=_marks(docs), texts=_marks(texts)), [*texts, tenant_id, *docs])
        for doc_id, version, begins, ends, text in cursor.fetchall():
            known = found.setdefault(doc_id, _Version(doc_id, version, day(begins), day(ends), set()))
            known.passages.add(text)
    today = clock.now().date()
    return {doc_id: version for doc_id, version in found.items() if in_effect(version, today)}


def _marks(values: Sized) -> str:
    return ", ".join(["%s"] * len(values))


def day(value: Any) -> date | None:
    """A date of a raw column (text on SQLite)."""
    return date.fromisoformat(value) if isinstance(value, str) else value


def _superseded(current: dict[str, _Version], rests_on: Sequence[PassageRef]) -> frozenset[str]:
    def stands(ref: PassageRef) -> bool:
        known = current.get(ref.doc)
        return known is not None and known.version == ref.version and ref.content_hash in known.passages

    return frozenset(ref.name for ref in rests_on if not stands(ref))
