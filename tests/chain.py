"""The audit chain of a run, computed again from its rows: what an outsider with the key would check."""

from __future__ import annotations

from agentsite import clock
from runs.models import Event, Run
from runs.store.events import chain_mac, payload_digest, signed_part, signing_key


def faults(run: Run) -> list[str]:
    """What does not hold, by sequence number; an event without its payload holds only under a later tombstone."""
    found, prev, rows = list[str](), "", list(Event.objects.filter(run=run).order_by("seq"))
    buried = max((e.seq for e in rows if e.type == "data.erased"), default=0)
    for number, e in enumerate(rows, start=1):
        signed = signed_part(
            run_id=str(run.pk), seq=e.seq, type_=e.type, at=clock.rfc3339(e.at), version=e.version, span=e.span,
            meta=e.meta,
        )  # fmt: skip
        if (e.seq, e.prev) != (number, prev) or e.mac != chain_mac(signing_key()[1], prev, signed, e.digest):
            found.append(f"{e.seq}: mac")
        whole = e.digest == payload_digest(e.salt, e.payload)
        erased = e.payload is None and e.salt is None and e.seq < buried
        if not whole and not erased:
            found.append(f"{e.seq}: digest")
        prev = e.mac
    return found + ([] if run.chain_head == prev else ["head"])
