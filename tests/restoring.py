"""A database put back to an earlier moment while the world outside went on: every row of runs, in this process."""

from __future__ import annotations

import json
from typing import Any

from django.db import connection, transaction

from agentsite.tenants.models import Site
from approvals.models import Approval, Decision
from runs import orchestrator, replay, store
from runs.models import Attempt, Counter, Event, Input, Observation, OrderGuard, Run, RunOrder, Turn, Write
from tests.world import World, final, gather, refund

SETTLE_S = 1.5
LONG_S = 600.0
"""A settling time that no test lives to see, however slow the machine."""
NOTE = "restored from last night"

# Parents first: rows are made in this order and removed in the opposite one.
TABLES: tuple[Any, ...] = (
    Site, Run, RunOrder, Input, Turn, Observation, Event, OrderGuard, Write, Attempt, Counter, Approval, Decision,
)  # fmt: skip


class Backup:
    """The rows as they are now."""

    def __init__(self) -> None:
        self.rows = [list(table.objects.all()) for table in TABLES]

    def put_back(self, world: World) -> None:
        """The database is the one of then. What the business system was asked meanwhile is counted no more."""
        with transaction.atomic(), connection.cursor() as cursor:
            for table in reversed(TABLES):
                _empty(cursor, table._meta.db_table)
            for table, rows in zip(TABLES, self.rows, strict=True):
                table.objects.bulk_create(rows)
            Run.objects.update(lease_token=None, lease_until=None, lease_deadline=None)
        world.sandbox.control("/_calls", clear=True)
        world.heard.clear()


def _empty(cursor: Any, table: str) -> None:
    """A restore is no change of a row: the trigger that keeps every decision is not asked (SQLite's tests drop it)."""
    keeps = connection.vendor == "postgresql" and table == Decision._meta.db_table
    cursor.execute("SET LOCAL session_replication_role = replica" if keeps else "SELECT 1")
    cursor.execute(f"DELETE FROM {table}")
    cursor.execute("SET LOCAL session_replication_role = origin" if keeps else "SELECT 1")


def asks_again() -> list[Any]:
    """The turns of a model whose first question came to nothing: it reads everything anew and proposes it again."""
    return [*gather(), refund(), *gather(), refund(), final()]


def settles_in(world: World, seconds: float = SETTLE_S, **more: str) -> None:
    """What the business system promises of its lists."""
    world.settings(COMMERCE_SETTLE_S=str(seconds), **more)


def ask(world: World) -> Run:
    """A run that waits for a person, with a model that asks again."""
    return world.start(script=asks_again())


def fence() -> store.FenceDone:
    """As the command does it."""
    return store.fence(reason=NOTE, by="shell")


def differences(run: Run) -> list[Any]:
    """What today's code makes otherwise of the record than was made of it."""
    return [one.wire() for one in replay.play(json.loads(replay.text(replay.export(run)))).differences]


def shows(world: World) -> None:
    """The one refund that was listed by nobody is listed from now on."""
    [made] = world.refunds()
    world.sandbox.control(f"/_refunds/{made['refund_id']}", shown=True)


def made_of(world: World) -> list[str]:
    """The refunds that exist, by their ids."""
    return [r["refund_id"] for r in world.refunds()]


def approved(world: World) -> Run:
    """The same, with a person's yes."""
    run = ask(world)
    world.approve(run)
    return run


def sends(run: Run) -> None:
    """What the worker did in the hours that the backup does not know of."""
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    state = store.load(str(run.pk), claimed.token)
    assert state.open_write is not None
    mark = store.mark_sent(state, state.open_write)
    assert mark is not None
    orchestrator.send(store.load(str(run.pk), claimed.token), orchestrator.ticket(state), mark)
