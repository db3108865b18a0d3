"""`replay`: a recorded run through today's code. Calls no model, no tool, no write; prints what went another way."""

from __future__ import annotations

import json
import os.path
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.table import Table
from rich.text import Text

from agentsite.canonical import NotStrictJson, strict_loads
from agentsite.text import visible
from runs import replay
from runs.management import output, schema
from runs.management.base import SiteCommand
from runs.management.finding import find_run
from runs.replay import Difference, Replayed
from tools.contracts import Json

MAX_BYTES = 64 * 1024 * 1024
MAX_SHOWN = 300


class Command(SiteCommand):
    help = (
        "Play a recorded run through today's code: its model outputs and tool results in, transitions, decisions, "
        "hashes, keys and reply out. Calls no model and no tool and writes nothing. "
        "Exit codes: 0 the same, 1 something differs (shown), 2 usage."
    )
    needs_database = False  # a file is replayed without one

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", metavar="RUN|FILE", help="a file of `export_run`, or a run, request or trace id")
        parser.add_argument("--tenant", help="whose request it is, where several tenants have one of this name")
        parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = replay.play(_document(options["run"], options["tenant"]))
        except replay.BadRecord as error:
            raise CommandError(f"{options['run']}: {error}") from None
        if options["json"]:
            output.data(self.stdout, found.wire())
        else:
            self._tell(found)
        if not found.identical:
            raise CommandError(_counted(len(found.differences), "difference"))

    def _tell(self, found: Replayed) -> None:
        turns, decisions = _counted(found.turns, "turn"), _counted(found.decisions, "decision")
        counted = f"{turns}, {decisions} and {_counted(found.transitions, 'transition')}"
        if found.identical:
            output.say(self.stdout, f"[green]The same[/]: {counted} of run {found.run_id} were replayed.")
        else:
            output.show(self.stdout, _table(found.differences, "Went another way", "bold red"))
            left = f"; {_counted(found.left, 'step')} after it were not" if found.left else ""
            output.say(self.stdout, f"\n{counted} of run {found.run_id} were replayed{left}.")
        if found.information:
            output.show(self.stdout, _table(found.information, "For information, no failure", "yellow"))


def _document(named: str, tenant: str | None) -> Json:
    if os.path.isfile(named):  # noqa: PTH113 - False for what can be no name of a file
        return _loaded(Path(named))
    away = schema.unreachable()
    if away is not None:
        raise CommandError(away)
    return _stored(named, tenant)


def _stored(named: str, tenant: str | None) -> Json:
    """Written and read like a file, so that both ways replay the same thing."""
    document: Json = json.loads(replay.text(replay.export(find_run(named, tenant))))
    return document


def _loaded(path: Path) -> Json:
    if path.stat().st_size > MAX_BYTES:
        raise CommandError(f"{path}: more than {MAX_BYTES // 1024 // 1024} MB")
    try:
        document: Json = strict_loads(path.read_text(encoding="utf-8"))
    except (NotStrictJson, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {error}") from None
    return document


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _table(rows: tuple[Difference, ...], title: str, style: str) -> Table:
    table = output.table("where", "what", "recorded", "now", title=title)
    for one in rows:
        table.add_row(
            Text(one.where), Text(visible(one.what)), Text(_shown(one.recorded), style="dim"),
            Text(_shown(one.now), style=style),
        )  # fmt: skip
    return table


def _shown(value: Any) -> str:
    """A value on one line: words as they are, anything else as JSON; nothing invisible stays invisible."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return visible(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…")
