"""Keeper: takes words and facts out of the approvals of an ended run; who decided what, when and on which hash stays.

Knows no runs; called by the store inside its transaction, which holds the run's row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Q, QuerySet

from approvals.models import Approval, Decision, Notice
from approvals.states import OPEN

ERASED = "[erased]"
OPEN_VALUES = sorted(status.value for status in OPEN)
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)

NONE: list[dict[str, Any]] = []
NO_ARGS: dict[str, Any] = {}

A = TypeVar("A")
T = TypeVar("T")


def readable(read: Callable[[A], T], given: A, otherwise: T) -> T:
    """What was read, or `otherwise` where a row's columns hold what no code of ours wrote: that goes whole."""
    try:
        return read(given)
    except UNREADABLE:
        return otherwise


def erase_words(run_id: str) -> None:
    """The customer's messages and words, and what people wrote with a decision, go."""
    for rows in _closed(run_id):
        rows.update(messages_shown=[], reason="", checks=readable(_without_words, rows, NONE))
    Decision.objects.filter(approval__run_id=run_id).update(reason="")


def erase_facts(run_id: str) -> None:
    """What it rested on goes: facts, evidence, the numbers of the checks, the model's reason. The hash stays."""
    for rows in _closed(run_id):
        checks, args = readable(_without_numbers, rows, NONE), readable(_without_reason, rows, NO_ARGS)
        rows.update(facts={}, evidence=[], checks=checks, args=args, reread=None)


def _closed(run_id: str) -> list[QuerySet[Approval]]:
    """The run's closed approvals, each by itself."""
    ids = Approval.objects.filter(run_id=run_id).exclude(status__in=OPEN_VALUES).values_list("pk", flat=True)
    return [Approval.objects.filter(pk=pk) for pk in ids]


def _without_words(rows: QuerySet[Approval]) -> list[dict[str, Any]]:
    return [_named(check) if quotes(check) else check for check in rows.only("checks").get().checks]


def _without_numbers(rows: QuerySet[Approval]) -> list[dict[str, Any]]:
    return [_named(check) for check in rows.only("checks").get().checks]


def _without_reason(rows: QuerySet[Approval]) -> dict[str, Any]:
    return unreasoned(rows.only("args").get().args)


def quotes(check: dict[str, Any]) -> bool:
    """Whether a check of the gate holds words that the customer wrote."""
    return check.get("name") == "sensitive_words"


def _named(check: dict[str, Any]) -> dict[str, Any]:
    return {name: check[name] for name in ("name", "ok") if name in check}


def unreasoned(args: dict[str, Any]) -> dict[str, Any]:
    """An action's arguments without the model's words: ids and the amount stay."""
    return {**args, "reason": ERASED} if "reason" in args else dict(args)


def sent_notices(*, before: datetime, tenant_id: str | None) -> QuerySet[Notice]:
    """Notices made before then that nobody waits for: of closed approvals, and digests."""
    closed = Q(approval=None) | ~Q(approval__status__in=OPEN_VALUES)
    rows = Notice.objects.filter(closed, created_at__lt=before, due_at=None)
    return rows if tenant_id is None else rows.filter(tenant_id=tenant_id)


def drop_notices(ids: Sequence[int]) -> None:
    Notice.objects.filter(pk__in=ids, due_at=None).delete()


def drop_notices_of(run_id: str) -> int:
    """Notices about one run's approvals, sent or given up; how many there were."""
    gone, _ = Notice.objects.filter(approval__run_id=run_id, due_at=None).delete()
    return gone
