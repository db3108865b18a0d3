"""Floor: Django's PostgreSQL with a pool that says at once that nobody listens. Imports nothing of ours.

A pool waits for a connection for as long as an overloaded database may need. One that is away would keep every request
and its thread waiting that long; so where the pool has nothing to hand out, the server's door is knocked at first.
"""

from __future__ import annotations

from socket import create_connection
from typing import Any

from django.db.backends.postgresql import base

KNOCK_S = 2.0
DEFAULT_PORT = 5432


class DatabaseWrapper(base.DatabaseWrapper):
    """Raises OperationalError within two seconds where no server accepts a connection."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        if self.pool is not None and not self.pool.get_stats().get("pool_available"):
            self._knock()
        return super().get_new_connection(conn_params)

    def _knock(self) -> None:
        host, port = str(self.settings_dict["HOST"]), self.settings_dict["PORT"] or DEFAULT_PORT
        if not host or host.startswith("/") or "," in host:
            return  # a socket file, or servers of which the client library finds the one that serves
        try:
            create_connection((host, int(port)), timeout=KNOCK_S).close()
        except OSError as error:
            raise self.Database.OperationalError(f"the database cannot be reached ({type(error).__name__})") from None
