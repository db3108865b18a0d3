"""Floor: Django's PostgreSQL with a pool of each process, which says at once that nobody listens. Imports no room.

A pool waits for a connection for as long as an overloaded database may need. One that is away would keep every request
and its thread waiting that long; so where the pool has nothing to hand out, the server's door is knocked at first.
"""

from __future__ import annotations

import os
import time
from socket import create_connection
from typing import Any

from django.db.backends.postgresql import base
from django.db.backends.utils import debug_transaction
from psycopg import OperationalError, errors
from psycopg.pq import ConnStatus, ExecStatus

KNOCK_S = 2.0
ANSWERED_FOR_S = 1.0
"""For so long a server that answered need not be asked again, unless a connection broke meanwhile: the server makes a
process for each who knocks."""
FINE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
BROKEN = ("connections_errors", "connections_lost", "returns_bad")
"""What a pool counts of connections that broke."""
_inherited: list[dict[str, Any]] = []
"""Pools of the process that this one was forked from: their threads are not here, their connections are not ours."""
DEFAULT_PORT = 5432


class DatabaseWrapper(base.DatabaseWrapper):
    """Raises OperationalError within two seconds where no server accepts a connection."""

    _answered: tuple[float, tuple[int, ...]] = (-ANSWERED_FOR_S, ())
    """When a server answered this process, and what was broken by then."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        if self.pool is not None:
            found = self.pool.get_stats()
            if not found.get("pool_available"):
                self._ask_whether_there(tuple(found.get(name, 0) for name in BROKEN))
        return super().get_new_connection(conn_params)

    def _ask_whether_there(self, broken: tuple[int, ...]) -> None:
        at, before = DatabaseWrapper._answered
        if before != broken or time.monotonic() - at > ANSWERED_FOR_S:
            self._knock()
            DatabaseWrapper._answered = (time.monotonic(), broken)

    def _knock(self) -> None:
        host, port = str(self.settings_dict["HOST"]), self.settings_dict["PORT"] or DEFAULT_PORT
        if not host or host.startswith("/") or "," in host:
            return  # a socket file, or servers of which the client library finds the one that serves
        try:
            create_connection((host, int(port)), timeout=KNOCK_S).close()
        except OSError as error:
            raise self.Database.OperationalError(f"the database cannot be reached ({type(error).__name__})") from None

    # A transaction of Django's changes psycopg's mode twice, which costs more than BEGIN and COMMIT; here it stays.

    def _start_transaction_under_autocommit(self) -> None:
        with debug_transaction(self, "BEGIN"), self.wrap_database_errors:
            self._say(b"BEGIN")

    def _set_autocommit(self, autocommit: bool) -> None:
        if self.connection.autocommit is not autocommit:
            super()._set_autocommit(autocommit)  # type: ignore[misc]

    def _commit(self) -> None:
        if self.connection is not None and self.connection.autocommit:
            with debug_transaction(self, "COMMIT"), self.wrap_database_errors:
                self._say(b"COMMIT")
        else:
            super()._commit()  # type: ignore[misc]

    def _say(self, command: bytes) -> None:
        pgconn = self.connection.pgconn
        check(pgconn, pgconn.exec_(command))


def check(pgconn: Any, result: Any) -> None:
    """Raises the driver's error for what the server, or the loss of it, says."""
    if result.status in FINE:
        return
    if pgconn.status != ConnStatus.OK:
        raise OperationalError(pgconn.get_error_message().strip())
    raise errors.error_from_result(result)


def _begin_without_pools() -> None:
    """Kept, not closed: whoever closed one here would speak on its parent's connections."""
    pools: dict[str, Any] = vars(base.DatabaseWrapper)["_connection_pools"]
    _inherited.append(dict(pools))
    pools.clear()


os.register_at_fork(after_in_child=_begin_without_pools)
