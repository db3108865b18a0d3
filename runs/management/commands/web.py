"""Door: `web`, the HTTP process: uvicorn on the ASGI application. Runs no worker and no sweeper."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import uvicorn
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, connection

from agentsite import clock, env, telemetry
from runs import store
from runs.management import schema
from runs.management.schema import missing_migrations

GRACE_S = 3
FIRST_WAIT_S, MOST_WAIT_S = 0.25, 5.0
LET_IN_S = 120.0
"""A server that recovers from a crash says no for a while; one that says no for longer has a reason of its own."""


class Command(BaseCommand):
    help = (
        "Serve the API and the console on PORT (8080) and BIND (127.0.0.1). Refuses to start on missing migrations. "
        "Exit codes: 0 stopped, 1 failed, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=None, help="instead of PORT")
        parser.add_argument("--bind", default=None, help="instead of BIND")

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_missing_migrations()
        store.look()
        given = env.listening(bind=options["bind"], port=options["port"])
        server = Server(configuration(host=given.BIND, port=given.PORT))
        server.run()
        if not server.started:
            raise CommandError(f"could not listen on port {given.PORT}")


class Server(uvicorn.Server):
    """Ends with its streams and long polls open: they are told, and do not use up the grace."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        from agentsite import asgi  # the server has loaded it; commands that only ask for migrations need not

        asgi.hub.close()
        await super().shutdown(sockets)


def refuse_missing_migrations() -> None:
    """Waits for a database that is away. Raises CommandError with one line where it lacks a migration or is no use.

    Who starts beside a database that restarts must come up with it, supervisor or not: a server that nobody hears is
    waited for without end, one that listens and lets nobody in for LET_IN_S, a file not at all.
    """
    missing = _once_it_answers(missing_migrations)
    if missing:
        raise CommandError(f"{len(missing)} migrations are missing ({missing[0]} first): run `manage.py migrate`")


def _once_it_answers(ask: Callable[[], list[str]]) -> list[str]:
    """What `ask` answers, asked with back-off and one line a try. Raises CommandError where waiting is no use."""
    shut_out_since: float | None = None
    for tries in count(1):
        why = schema.unreachable()
        if why is None:
            shut_out_since = shut_out_since or clock.monotonic()
            try:
                return ask()
            except (DatabaseError, InterfaceError) as error:
                why = f"the database cannot be reached ({type(error).__name__})"
            if connection.vendor == "sqlite" or clock.monotonic() - shut_out_since > LET_IN_S:
                raise CommandError(why)
        else:
            shut_out_since = None
        _wait(tries, why)
    raise AssertionError("counting has no end")


def _wait(tries: int, why: str) -> None:
    wait_s = min(FIRST_WAIT_S * 2.0 ** min(tries - 1, 10), MOST_WAIT_S)
    telemetry.log("start.database_away", why=why, tries=tries, next_try_s=wait_s)
    try:
        time.sleep(wait_s)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def configuration(*, host: str, port: int) -> uvicorn.Config:
    """How uvicorn serves us: our logs, a short grace for open streams, no address taken from a header."""
    return uvicorn.Config(
        "agentsite.asgi:application", host=host, port=port, lifespan="off", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=GRACE_S,
    )  # fmt: skip
