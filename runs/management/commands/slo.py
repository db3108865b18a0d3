"""Door: `slo`, how well the service serves: success, escalation, caps, cost, time, and each tenant's objective."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.console import RenderableType
from rich.text import Text

from agentsite import dbtime
from agentsite.tenants.models import Tenant
from agentsite.text import visible
from approvals import labels
from runs.management import output
from runs.management.base import SiteCommand
from runs.measures import caps, report, words
from runs.measures.figures import Figures
from runs.measures.objectives import MOST_DAYS
from runs.measures.report import DIMENSIONS, Groups, Report


class Command(SiteCommand):
    help = (
        "Tell how well the service serves: success, escalation by reason, cap hits, cost, time, by release and model; "
        "the value each cap should have; each tenant's objective and its error budget. Exit codes: 0 told, 1 no such "
        "tenant, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", help="one tenant alone")
        parser.add_argument("--days", type=_days, default=30, help=f"runs that ended in so many days, 1 to {MOST_DAYS}")
        parser.add_argument("--by", choices=DIMENSIONS, help="one dimension (default: by release and by model)")
        parser.add_argument("--json", action="store_true", help="print the whole report as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = options["tenant"]
        if tenant is not None and not Tenant.objects.filter(pk=tenant).exists():
            raise CommandError(f"--tenant: there is no tenant {visible(tenant)!r}")
        by = (options["by"],) if options["by"] else ("release", "model")
        made = report.make(dbtime.now(), days=options["days"], tenants=None if tenant is None else [tenant], by=by)
        if options["json"]:
            return output.data(self.stdout, report.wire(made))
        for part in _parts(made):
            output.show(self.stdout, part)
        return None


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_DAYS:
        raise argparse.ArgumentTypeError(f"a whole number of days from 1 to {MOST_DAYS}")
    return int(text)


def _parts(made: Report) -> Iterator[RenderableType]:
    yield output.heading(f"{made.whole.runs:,} runs that count, ended in the last {made.days} days")
    for line in words.caveats(made):
        yield Text(line, style="yellow")
    yield _ends(made.whole)
    yield output.heading("\nHanded to a person, by reason")
    yield _reasons(made.whole)
    yield output.heading("\nWhat a run takes")
    yield _used(made.whole)
    for group in made.groups:
        yield output.heading(f"\nBy {group.by}")
        yield _group(group)
    yield output.heading("\nCaps: what each should be, by successful runs, and what is granted")
    yield _caps(made)
    yield output.heading("\nObjectives and error budgets")
    yield _promises(made)
    yield Text(f"\n{words.READ}", style="dim")


def _ends(whole: Figures) -> RenderableType:
    grid = output.grid(22, None)
    for name, share in words.ends(whole):
        grid.add_row(Text(name, style="dim"), words.share(share))
    grid.add_row(Text("finished by hand", style="dim"), f"{whole.by_hand:,}")
    grid.add_row(Text("beside, not counted", style="dim"), words.beside(whole))
    return grid


def _reasons(whole: Figures) -> RenderableType:
    table = output.table("runs", "reason", "spends budget", "cap", "")
    for one in whole.reasons:
        table.add_row(
            f"{one.runs:,}", Text(labels.spoken(one.reason or one.status)), "yes" if one.failure else "no",
            "yes" if one.cap else "", Text(one.why, style="dim"),
        )  # fmt: skip
    return table if whole.reasons else Text("none", style="dim")


def _used(whole: Figures) -> RenderableType:
    table = output.table("", "n", "p50", "p95", "p99", "most", "sum")
    for row in words.used(whole):
        table.add_row(Text(row.name, style="dim"), *row.cells)
    return table


def _group(group: Groups) -> RenderableType:
    table = output.table(group.by, *words.COLUMNS)
    for name, found in group.rows:
        table.add_row(Text(visible(name)), *words.line(found))
    if group.left_out:
        table.add_row(Text(f"{group.left_out:,} more", style="dim"))
    return table


def _caps(made: Report) -> RenderableType:
    table = output.table("tenant", "agent", "cap", "should be", "largest", "granted", "within 80 %", "successes")
    for agent in made.caps:
        for cap in agent.table:
            told = words.cap(cap, agent.currency)
            table.add_row(
                visible(agent.tenant), visible(agent.agent), caps.NAMES[cap.name].lower(), told.should_be, told.most,
                told.granted, told.near, f"{cap.successes:,}",
            )  # fmt: skip
    return table if made.caps else Text("none", style="dim")


def _promises(made: Report) -> RenderableType:
    table = output.table("tenant", "objective", "reached", "budget used", "left", "burns (fast, slow, trickle)", "")
    for promise in made.promises:
        for row in words.promised(promise):
            table.add_row(
                visible(promise.tenant), row.objective, row.reached, row.used, row.left, row.burns,
                Text(row.verdict, style=_STYLE[row.tone]),
            )  # fmt: skip
    return table


_STYLE = {"good": "green", "wait": "yellow", "bad": "red", "plain": "dim"}
