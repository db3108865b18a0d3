"""`export_run`: a run's whole record as one JSON document, to be kept, read, or replayed. Reads rows, writes none."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from runs import replay
from runs.management.base import SiteCommand
from runs.management.finding import find_run


class Command(SiteCommand):
    help = (
        "Print a run's whole record as one JSON document: everything that explains it, and what `replay` needs. "
        "It holds the customer's words and no secret. Exit codes: 0 printed, 1 no such run, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", metavar="RUN", help="a run id, a request id or a trace id")
        parser.add_argument("--tenant", help="whose request it is, where several tenants have one of this name")

    def handle(self, *args: Any, **options: Any) -> None:
        found = find_run(options["run"], options["tenant"])
        self.stdout.write(replay.text(replay.export(found)), ending="")
