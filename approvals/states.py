"""The life of an approval, as one table. A paper."""

from __future__ import annotations

from enum import StrEnum


class Approved(StrEnum):
    """Statuses of an approval; `expired` is never shown or told as `rejected`."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    VOID = "void"
    CONSUMED = "consumed"


NEXT: dict[Approved, frozenset[Approved]] = {
    Approved.PENDING: frozenset({Approved.APPROVED, Approved.REJECTED, Approved.EXPIRED, Approved.VOID}),
    Approved.APPROVED: frozenset({Approved.CONSUMED, Approved.VOID}),
    Approved.REJECTED: frozenset(),
    Approved.EXPIRED: frozenset(),
    Approved.VOID: frozenset(),
    Approved.CONSUMED: frozenset(),
}
OPEN = frozenset({Approved.PENDING, Approved.APPROVED})


class IllegalDecision(Exception):
    """An approval's status and a change that do not go together."""


def check(old: Approved, new: Approved) -> None:
    """Raises IllegalDecision unless the table allows it."""
    if new not in NEXT[old]:
        raise IllegalDecision(f"{old.value} cannot become {new.value}")
