"""`verify_audit`: whether the record of runs is the one that was written. Reads rows, logs and files, writes none."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from rich.table import Table
from rich.text import Text

from agentsite.canonical import NotStrictJson, strict_loads
from agentsite.text import visible
from runs import archive, audit
from runs.audit import Verdict
from runs.audit.values import Head
from runs.management import output, schema
from runs.management.base import SiteCommand
from runs.management.finding import find_run

MAX_BYTES = 64 * 1024 * 1024


class Command(SiteCommand):
    help = (
        "Check the audit chain of every run, its row, and what logs outside the database knew of it; names the first "
        "row of a run that was changed, removed, inserted, moved or cut off. Erased payloads verify and are counted. "
        "Exit codes: 0 whole, 1 a fault, or something cannot be read, 2 usage."
    )
    needs_database = False  # a file is checked without one

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("runs", nargs="*", metavar="RUN", help="a run id, a request id or a trace id; default: all")
        parser.add_argument("--tenant", help="only runs of this tenant")
        parser.add_argument(
            "--anchors", action="append", metavar="FILE", type=Path,
            help="a log of heads or of writes, of any host; may be given several times; default: this host's own",
        )  # fmt: skip
        parser.add_argument("--export", metavar="FILE", type=Path, help="check a file of export_run; needs no database")
        parser.add_argument(
            "--archives", metavar="DIR", type=Path, help="check the payloads of archived runs, too, in this folder"
        )
        parser.add_argument("--after", metavar="RUN_ID", type=_id, help="go on after this run, in the order of ids")
        parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        _fits(options)
        verdict = _of_file(options) if options["export"] else _of_database(options)
        if options["json"]:
            output.data(self.stdout, verdict.wire())
        else:
            self._tell(verdict)
        if not verdict.whole:
            raise CommandError(f"{_counted(verdict.faulty, 'run')} not whole")

    def _tell(self, verdict: Verdict) -> None:
        if verdict.faults:
            output.show(self.stdout, _table(verdict))
        left = verdict.faulty - len(verdict.faults)
        for words in (
            *((f"{left} more are not listed.",) if left else ()), _sum(verdict), *_more(verdict), _outside(verdict),
        ):  # fmt: skip
            output.say(self.stdout, words)


def _id(text: str) -> uuid.UUID:
    return uuid.UUID(text)


def _fits(options: dict[str, Any]) -> None:
    others = options["runs"] or options["tenant"] or options["after"] or options["archives"]
    if options["export"] and others:
        words = "--export checks one file: name no run, no --tenant, no --after, no --archives"
        raise CommandError(words, returncode=2)
    if options["runs"] and options["after"]:
        raise CommandError("--after goes on in all runs: name none", returncode=2)


def _logs(paths: list[Path]) -> audit.Logs:
    try:
        return audit.Logs(paths)
    except audit.Unreadable as error:
        raise CommandError(str(error)) from None


def _of_database(options: dict[str, Any]) -> Verdict:
    away = schema.unreachable()
    if away is not None:
        raise CommandError(away)
    paths = audit.logs_here() if options["anchors"] is None else options["anchors"]
    with _logs(paths) as logs:
        ids = tuple(_run_id(named, options["tenant"], logs) for named in options["runs"])
        asked = audit.Asked(run_ids=ids, tenant_id=options["tenant"], after=options["after"])
        return audit.verify(asked, audit.keys_of(settings.AUDIT_KEY), logs, _archives(options["archives"]))


def _archives(folder: Path | None) -> audit.Archives | None:
    """Reads what runs have in the files of a folder."""
    if folder is None:
        return None

    def payloads(head: Head) -> Mapping[int, tuple[str, str]]:
        try:
            return archive.payloads(head.run_id, folder)
        except archive.BadArchive as error:
            raise audit.BadArchived(str(error)) from None

    return payloads


def _run_id(named: str, tenant: str | None, logs: audit.Logs) -> uuid.UUID:
    """The run's id; of a run that only a log knows, by its id."""
    try:
        return find_run(named, tenant).id
    except CommandError:
        known = _known(named, logs)
        if known is None:
            raise
        return known


def _known(named: str, logs: audit.Logs) -> uuid.UUID | None:
    try:
        run_id = uuid.UUID(named)
    except ValueError:
        return None
    return run_id if logs.of(str(run_id)) else None


def _of_file(options: dict[str, Any]) -> Verdict:
    path: Path = options["export"]
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CommandError(f"{path}: more than {MAX_BYTES // 1024 // 1024} MB")
        document = strict_loads(path.read_text(encoding="utf-8"))
        with _logs(options["anchors"] or []) as logs:
            return audit.verify_export(document, audit.keys_of(settings.AUDIT_KEY), logs)
    except OSError as error:
        raise CommandError(f"{path} cannot be read ({type(error).__name__})") from None
    except (NotStrictJson, UnicodeDecodeError, audit.BadExport) as error:
        raise CommandError(f"{path}: {error}") from None


# --- words -----------------------------------------------------------------------------------------------------


def _table(verdict: Verdict) -> Table:
    table = output.table("run", "request", "seq", "type", "what", "why", title="The first row of each run")
    for one in verdict.faults:
        table.add_row(
            one.run_id, Text(visible(one.request_id)), str(one.seq), Text(visible(one.type or "")),
            Text(one.kind, style="bold red"), Text(visible(one.why)),
        )  # fmt: skip
    return table


def _sum(verdict: Verdict) -> str:
    looked = f"{_counted(verdict.runs, 'run')} with {_counted(verdict.events, 'event')}"
    return f"[green]Whole[/]: {looked}." if verdict.whole else f"[red]Not whole[/]: {verdict.faulty} of {looked}."


def _more(verdict: Verdict) -> list[str]:
    told = (
        (verdict.erased, "payload", "erased under a tombstone; digest and MAC verify."),
        (verdict.archived, "payload", "in archives; digest and MAC verify."),
        (verdict.read_back, "payload", "of these read there, and whole."),
        (verdict.unspanned, "event", "of an older release, whose chain did not cover the span."),
    )
    return [f"{_counted(number, noun)} {words}" for number, noun, words in told if number]


def _outside(verdict: Verdict) -> str:
    if not verdict.logs:
        return "No log outside the database was compared."
    words = f"{_counted(verdict.lines, 'line')} of {_counted(len(verdict.logs), 'log')}: {verdict.known} of the runs"
    words += f" are known there, {verdict.unknown} are not."
    if verdict.put_back:
        words += f" {_counted(verdict.put_back, 'line')} older than a fence went with the database that was put back."
    return words + (f" {_counted(verdict.unread, 'line')} could not be read." if verdict.unread else "")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
