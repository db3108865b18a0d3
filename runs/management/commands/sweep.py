"""`sweep`: one pass of recovery."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from runs import sweeper
from runs.management.base import SiteCommand


class Command(SiteCommand):
    help = "One pass of recovery: find due runs that nobody works on, and hint for them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the result as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        done = sweeper.sweep()
        if options["json"]:
            result = {"swept": done is not None} | (
                {"found": done.found, "published": done.published, "broker": done.broker} if done else {}
            )
            self.stdout.write(json.dumps(result))
        elif done is None:
            self.stdout.write("Another process is sweeping right now; nothing to do.")
        else:
            state = "" if done.broker else " The broker refused; the rest waits for the next pass."
            self.stdout.write(f"{done.found} due, {done.published} hints sent.{state}")
