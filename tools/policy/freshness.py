"""The registry's word on what is current, read from rows at the moment it is asked. Never imports runs.

A text's own words, an index and a file's name say nothing about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from datetime import date
from functools import partial
from typing import Any, NamedTuple, Protocol

from agentsite import clock, questions
from agentsite.questions import Question, Row
from agentsite.tenants import glance
from agentsite.tenants.profiles import POLICY_PIN
from tools.contracts import PassageRef, PolicyState
from tools.policy.documents import Dated, in_effect

CURRENT = "FROM tools_policydocument d WHERE d.tenant_id = %s AND d.status = 'current' AND d.doc_id IN ({docs})"
WITH_TEXTS = (
    "FROM tools_policydocument d LEFT JOIN tools_policypassage p ON p.document_id = d.id "
    "AND p.content_hash IN ({texts}) WHERE d.tenant_id = %s AND d.status = 'current' AND d.doc_id IN ({docs})"
)


class Versioned(Dated, Protocol):
    """A version of a document with its dates, as a search read it."""

    @property
    def doc_id(self) -> str: ...
    @property
    def version(self) -> int: ...


def policy_state(tenant_id: str, pin: str, rests_on: Sequence[PassageRef] = ()) -> PolicyState:
    """The pinned document and version, the version in effect now (None where there is none), and which of these
    passages no version in effect has any more. Raises ValueError."""
    return questions.ask(question(tenant_id, pin, rests_on))


def question(tenant_id: str, pin: str, rests_on: Sequence[PassageRef] = ()) -> Question[PolicyState]:
    """What `policy_state` asks, for whoever asks more with it. Raises ValueError."""
    doc, _ = split_pin(pin)
    texts = sorted({ref.content_hash for ref in rests_on})
    docs = sorted({doc, *(ref.doc for ref in rests_on)})
    rest = (WITH_TEXTS if texts else CURRENT).format(docs=_marks(docs), texts=_marks(texts))
    return Question(
        columns=("d.doc_id", "d.version", "d.effective_from", "d.effective_until", "p.content_hash" if texts else "''"),
        rest=rest, params=[*texts, tenant_id, *docs], read=partial(_state, pin, rests_on),
    )  # fmt: skip


def lately(tenant_id: str, pin: str) -> PolicyState:
    """As `policy_state`, and within a pass as of a moment ago: for what ends a run, never for what decides a write."""
    return glance.looked(_key(tenant_id, pin), partial(policy_state, tenant_id, pin))


def note(tenant_id: str, pin: str, versions: Iterable[Versioned]) -> None:
    """What a search has just read of the pinned document, all its versions, is what `lately` knows."""
    doc, pinned = split_pin(pin)
    today = clock.now().date()
    current = next((one.version for one in versions if one.doc_id == doc and in_effect(one, today)), None)
    glance.tell(_key(tenant_id, pin), PolicyState(doc=doc, pinned=pinned, current=current))


def _key(tenant_id: str, pin: str) -> tuple[str, str, str]:
    return "policy", tenant_id, pin


def _state(pin: str, rests_on: Sequence[PassageRef], rows: Sequence[Row]) -> PolicyState:
    doc, version = split_pin(pin)
    current = _in_effect(rows)
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


def _in_effect(rows: Sequence[Row]) -> dict[str, _Version]:
    found: dict[str, _Version] = {}
    for doc_id, version, begins, ends, text in rows:
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
