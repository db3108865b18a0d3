"""The registry's word on what is current, read from rows at the moment it is asked. Never imports runs.

A text's own words, an index and a file's name say nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentsite import clock
from agentsite.tenants.profiles import POLICY_PIN
from tools.contracts import PassageRef, PolicyState
from tools.models import PolicyDocument, PolicyPassage
from tools.policy.documents import in_effect


def policy_state(tenant_id: str, pin: str, rests_on: Sequence[PassageRef] = ()) -> PolicyState:
    """The pinned document and version, the version in effect now (None where there is none), and which of these
    passages no version in effect has any more. Raises ValueError."""
    doc, version = split_pin(pin)
    current = _in_effect(tenant_id, {doc, *(ref.doc for ref in rests_on)})
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


def _in_effect(tenant_id: str, docs: set[str]) -> dict[str, PolicyDocument]:
    rows = PolicyDocument.objects.filter(tenant_id=tenant_id, doc_id__in=docs, status="current").defer("body")
    return {row.doc_id: row for row in rows if in_effect(row, clock.now().date())}


def _superseded(current: dict[str, PolicyDocument], rests_on: Sequence[PassageRef]) -> frozenset[str]:
    of = {(row.doc_id, row.version): row.pk for row in current.values()}
    known = [ref for ref in rests_on if (ref.doc, ref.version) in of]
    stands = set(
        PolicyPassage.objects.filter(
            document__in=of.values(), content_hash__in={ref.content_hash for ref in known}
        ).values_list("document_id", "content_hash")
    )
    held = {ref for ref in known if (of[ref.doc, ref.version], ref.content_hash) in stands}
    return frozenset(ref.name for ref in rests_on if ref not in held)
