"""Door: `web`, the HTTP process: uvicorn on the ASGI application. Runs no worker and no sweeper."""

from __future__ import annotations

from typing import Any

import uvicorn
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from agentsite import env
from runs.management.schema import missing_migrations

GRACE_S = 3


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
        given = env.read()
        port = given.PORT if options["port"] is None else options["port"]
        server = uvicorn.Server(configuration(host=options["bind"] or given.BIND, port=port))
        server.run()
        if not server.started:
            raise CommandError(f"could not listen on port {port}")


def refuse_missing_migrations() -> None:
    """Raises CommandError with one line where the database lacks a migration or is away."""
    try:
        missing = missing_migrations()
    except (DatabaseError, InterfaceError) as error:
        raise CommandError(f"the database cannot be reached ({type(error).__name__})") from None
    if missing:
        raise CommandError(f"{len(missing)} migrations are missing ({missing[0]} first): run `manage.py migrate`")


def configuration(*, host: str, port: int) -> uvicorn.Config:
    """How uvicorn serves us: our logs, a short grace for open streams, no address taken from a header."""
    return uvicorn.Config(
        "agentsite.asgi:application", host=host, port=port, lifespan="off", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_graceful_shutdown=GRACE_S,
    )  # fmt: skip
