"""Door: reads the live facts of a waiting approval once more, with the read credential, for its page alone.

Decides nothing: what it finds is shown and part of the page's hash, and the gate reads everything again at the release.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from agentsite import clock, dbtime
from approvals import queue
from approvals.changes import Change, between, order_gone
from approvals.models import Approval
from runs.models import Run
from tools import facts
from tools.backends import backend_of
from tools.errors import NotFound, ReadFailed

# A person waits for it; the release reads again without hurry.
WITHIN_S = 4.0
MAX_TOLD = 5
UNREADABLE = "profile_unreadable"


@dataclass(frozen=True, kw_only=True)
class Reread:
    """`changes` since the proposal; `moved`: those that the page did not show before; `error`: why nothing was read."""

    changes: tuple[Change, ...] = ()
    moved: tuple[Change, ...] = ()
    error: str = ""


def again(approval: Approval) -> Reread:
    """Reads, keeps what was found on the approval, and says what is new. Bounded to WITHIN_S; never raises for a
    business system that cannot be read."""
    before = shown(approval)
    try:
        changes = _read(approval)
    except ReadFailed as error:
        return _kept(approval, before, before, error.slug)
    except ValidationError:  # nobody is kept from deciding because a profile cannot be read
        return _kept(approval, before, before, UNREADABLE)
    return _kept(approval, before, changes, "")


def shown(approval: Approval) -> tuple[Change, ...]:
    """The changes that the page shows: those of the last reading that came to its end."""
    return tuple(Change(**change) for change in (approval.reread or {}).get("changes", ()))


def _read(approval: Approval) -> tuple[Change, ...]:
    run = Run.objects.only("agent", "trace_id").get(pk=approval.run_id)
    backend = backend_of(approval.tenant_id, run.agent)
    try:
        now = facts.read_facts(backend, approval.order_id, run.trace_id, own=(), epoch=0, retries=0, within_s=WITHIN_S)
    except NotFound:
        return order_gone(approval.facts)
    return between(approval.facts, now)


def _kept(approval: Approval, before: tuple[Change, ...], changes: tuple[Change, ...], error: str) -> Reread:
    read_at = (approval.reread or {}).get("read_at", "") if error else clock.rfc3339(dbtime.now())
    found: dict[str, Any] = {"read_at": read_at, "changes": [c.wire() for c in changes], "error": error}
    queue.show_reread(approval.pk, found)
    approval.reread = found
    return Reread(changes=changes, moved=tuple(_new(before, changes)), error=error)


def _new(before: tuple[Change, ...], changes: tuple[Change, ...]) -> Iterable[Change]:
    yield from (c for c in changes if c not in before)
    gone = {c.what for c in before} - {c.what for c in changes}
    # Back to what the gate read: the page said otherwise, so this is news too.
    yield from (Change(what=c.what, old=c.new, new=c.old) for c in before if c.what in gone)


def told(changes: Iterable[Change]) -> str:
    """The changes in one line, the first few of them."""
    listed = list(changes)
    text = "; ".join(f"{c.what}: {c.old} → {c.new}" for c in listed[:MAX_TOLD])
    return text + (f"; and {len(listed) - MAX_TOLD} more." if len(listed) > MAX_TOLD else ".")
