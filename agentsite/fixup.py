"""Celery's Django fixup, but that a forked process keeps its pool of connections from one task to the next.

Celery closes the pool before and after each task there: a connection anew, with nothing planned on it, costs several
times what a task does. Each process has a pool of its own (`agentsite.postgres`), so that nothing is shared by a fork.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery.fixups.django import DjangoFixup, DjangoWorkerFixup  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from celery import Celery


class _Worker(DjangoWorkerFixup):  # type: ignore[misc]
    def _is_prefork(self) -> bool:
        """Asked only whether the pool is closed with a connection, which goes back to it either way."""
        return False


class _Fixup(DjangoFixup):
    def __init__(self, app: Celery) -> None:
        super().__init__(app)
        self.made: DjangoWorkerFixup | None = None

    @property
    def worker_fixup(self) -> DjangoWorkerFixup:
        if self.made is None:
            self.made = _Worker(self.app)
        return self.made

    @worker_fixup.setter
    def worker_fixup(self, value: DjangoWorkerFixup) -> None:
        self.made = value


def fixup(app: Celery) -> _Fixup:
    """What Celery asks for by its name in `builtin_fixups`."""
    made = _Fixup(app)
    made.install()
    return made
