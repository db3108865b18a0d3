"""`sandbox`: the sandbox business system as its own process with its own file."""

from __future__ import annotations

import sqlite3
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentsite import env
from tools import sandbox


class Command(BaseCommand):
    help = "Run the sandbox business system (development): orders, payments, refunds over HTTP, faults on request."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8090, help="port to listen on (default 8090; 0 picks one)")
        parser.add_argument("--bind", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
        parser.add_argument("--file", default="", help="where its ledger is kept (default: in VAR_DIR)")

    def handle(self, *args: Any, **options: Any) -> None:
        e = env.read()
        write = e.COMMERCE_WRITE_TOKEN.get_secret_value() if e.COMMERCE_WRITE_TOKEN else "sandbox-write"
        file = options["file"] or str(settings.VAR_DIR / "sandbox.sqlite3")
        settings.VAR_DIR.mkdir(parents=True, exist_ok=True)
        try:
            sandbox.serve(options["bind"], options["port"], file, e.COMMERCE_READ_TOKEN.get_secret_value(), write)
        except (OSError, sqlite3.Error) as error:
            raise CommandError(f"the sandbox cannot start: {error}") from None
