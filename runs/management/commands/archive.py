"""Door: `archive`, moves the texts of old ended runs into files, and brings them back."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.markup import escape

from agentsite import dbtime, env
from agentsite.tenants.models import Tenant
from runs import archive
from runs.management import output
from runs.management.base import SiteCommand
from runs.management.finding import find_run
from runs.store import archiving

MOST_DAYS = 36_500
STOPS = {
    "write_open": "nobody knows yet what became of a refund",
    "refund_watched": "a refund is watched for 30 days, since it may still fail",
    "input_unread": "something that was written to it was not read",
    "webhook_due": "a webhook is not delivered yet",
    "notice_due": "a notice to staff is not sent yet",
    "compare_due": "its proposal in shadow mode is not compared yet",
    "customer_link": "its customer's link still serves",
}


class Command(SiteCommand):
    help = (
        "Move what models, systems and customers' files said in ended runs out of the database into files, and bring "
        "it back. Rows, ids, keys, amounts, decisions and the audit chain stay, and so does what a customer is told. "
        "An erasure reaches the files, too: it takes their keys. Killed half-way, run it again. "
        "Exit codes: 0 done, 1 failed or refused, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--older-than", metavar="DAYS", type=_days, help="archive runs that ended so long ago")
        what.add_argument("--restore", metavar="RUN", help="bring one back: a run id, a request id or a trace id")
        what.add_argument("--restore-all", metavar="FILE", type=Path, help="bring back every run in a file")
        what.add_argument("--tidy", action="store_true", help="remove files that no run needs any more")
        parser.add_argument("--tenant", help="of this tenant alone")
        parser.add_argument("--to", metavar="DIR", type=Path, help="the files' folder (default: VAR_DIR/archive)")
        parser.add_argument(
            "--from", metavar="DIR", dest="source", type=Path, help="where a run's file is now, if it was moved"
        )
        parser.add_argument("--dry-run", action="store_true", help="count what would be archived; archive nothing")
        parser.add_argument("--json", action="store_true", help="print what was done as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        _fits(options)
        try:
            found, words = _done(options)
        except archive.Busy as error:
            raise CommandError(f"another archiver works in {error}") from None
        except archive.BadArchive as error:
            raise CommandError(f"refused: {error}") from None
        except OSError as error:
            raise CommandError(f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}") from None
        if options["json"]:
            return output.data(self.stdout, found)
        for line in words:
            output.say(self.stdout, line)
        return None


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MOST_DAYS:
        raise ArgumentTypeError(f"a whole number of days from 1 to {MOST_DAYS}")
    return int(text)


def _fits(options: dict[str, Any]) -> None:
    moves = options["older_than"] is not None
    if options["dry_run"] and not moves:
        raise CommandError("--dry-run counts what --older-than would archive", returncode=2)
    if options["source"] is not None and not options["restore"]:
        raise CommandError("--from says where the file of --restore is", returncode=2)
    if options["to"] is not None and not (moves or options["tidy"]):
        raise CommandError("--to is the folder of --older-than and --tidy", returncode=2)
    tenant = options["tenant"]
    if tenant is not None and not Tenant.objects.filter(id=tenant).exists():
        raise CommandError(f"no tenant {tenant!r}")


def _done(options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    if options["restore"]:
        return _one_back(options)
    if options["restore_all"]:
        done = archive.restore_file(options["restore_all"].absolute())
        words = f"{done.back} runs are back; {done.there} were there already, {done.elsewhere} are in another file"
        return asdict(done), [f"[green]✓[/green] {words}."]
    folder = (options["to"] or env.read().VAR_DIR / "archive").absolute()
    if options["tidy"]:
        gone = archive.tidy(folder) if folder.is_dir() else ()
        return {"removed": list(gone)}, [f"[green]✓[/green] {len(gone)} files that no run needs are gone."]
    return _moved(folder, options)


def _one_back(options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    run = find_run(options["restore"], options["tenant"])
    source: Path | None = options["source"]
    back = archive.restore(str(run.pk), source.absolute() if source is not None else None)
    words = "is whole again" if back else "is not archived: nothing is to be done"
    return {"run_id": str(run.pk), "back": back}, [f"[green]✓[/green] run {run.pk} {words}."]


def _moved(folder: Path, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    before = dbtime.now() - timedelta(days=options["older_than"])
    if options["dry_run"]:
        counted = archiving.counted(before, options["tenant"])
        may = counted.pop(archiving.MAY, 0)
        return {"dry_run": True, "runs": may, "stopped": counted}, [f"would archive {may} runs.", *_left(counted)]
    done = archive.archive(folder, before=before, tenant_id=options["tenant"])
    words = f"archived {done.runs} runs in {done.files} files of {done.size} bytes under {escape(str(folder))}."
    odd = f"{done.nothing} had nothing to archive or rows nobody can read, {done.changed} changed meanwhile."
    more = [odd] if done.nothing or done.changed else []
    return {"dry_run": False, **asdict(done)}, [f"[green]✓[/green] {words}", *more, *_left(done.stopped)]


def _left(stopped: Mapping[str, int]) -> list[str]:
    return [f"left alone: {number}, {STOPS[why]}." for why, number in sorted(stopped.items())]
