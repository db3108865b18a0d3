"""Door: `doctor`, the configuration and every dependency, one line each. Looks; changes nothing."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.text import Text

from runs.management import findings, output
from runs.management.base import SiteCommand
from runs.management.findings import FAIL, OK, WARN, Finding

SIGNS = {OK: ("✓", "green"), WARN: ("!", "yellow"), FAIL: ("✗", "bold red")}


class Command(SiteCommand):
    help = (
        "Look at the configuration and at every dependency, one line each; prints no secret. "
        "Exit codes: 0 nothing fails (warnings may), 1 something fails, 2 usage."
    )
    requires_system_checks = []
    needs_database = False  # that it is away is a finding

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the findings as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        logging.getLogger().setLevel(logging.ERROR)  # what is wrong is a finding below
        found = []
        for one in findings.examine():
            found.append(one)
            if not options["json"]:
                self._print(one)
        counted = Counter(one.verdict for one in found)
        if options["json"]:
            output.data(self.stdout, {"ok": not counted[FAIL], "checks": [one.wire() for one in found]})
        else:
            words = f"{counted[OK]} ok, {counted[WARN]} to look at, {counted[FAIL]} failing"
            output.say(self.stdout, f"\n{words}")
        if counted[FAIL]:
            raise CommandError(f"{counted[FAIL]} of {len(found)} checks fail")

    def _print(self, one: Finding) -> None:
        sign, style = SIGNS[one.verdict]
        grid = output.grid(1, 30, None)
        grid.add_row(Text(sign, style=style), Text(one.name, style="bold"), Text(one.detail))
        output.show(self.stdout, grid)
