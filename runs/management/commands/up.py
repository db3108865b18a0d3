"""`up`: the embedded process: web, worker and sweeper in one, on whatever database and broker are configured."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentsite import env
from agentsite.embedded import Worker
from runs import store
from runs.management.commands.web import Server, configuration, refuse_missing_migrations


class Command(BaseCommand):
    help = "Run everything in one process: the API, the console, the worker and the sweeper (no sandbox)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=None, help="instead of PORT")
        parser.add_argument("--bind", default=None, help="instead of BIND")

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_missing_migrations()
        store.look()
        given = env.listening(bind=options["bind"], port=options["port"])
        host, port = given.BIND, given.PORT
        ended = _own_signals()
        worker = Worker(url=f"http://{host}:{port}")
        worker.start()
        server = Server(configuration(host=host, port=port))
        self.stdout.write(f"agentsite is up: http://{host}:{port}/admin/", ending="\n")
        self.stdout.flush()
        try:
            if not ended.is_set():
                server.run()
        finally:
            worker.stop()
        if not server.started and not ended.is_set():
            raise CommandError(f"could not listen on {host}:{port}")


def _own_signals() -> threading.Event:
    """uvicorn raises a signal again after its shutdown; ours only notes it, so that worker and sweeper stop too."""
    ended = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: ended.set())
    return ended
