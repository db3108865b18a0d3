"""Runs old enough to be archived, the command that does it, and every cell of the database before and after."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command
from django.db import connection

from agentsite import dbtime
from runs.models import Event, Observation, Run, Turn, Write
from runs.store import archived

Json = dict[str, Any]
Cells = dict[str, list[tuple[Any, ...]]]


def command(*args: str) -> Json:
    """What `archive` did, as data."""
    out = io.StringIO()
    call_command("archive", *args, "--json", stdout=out, stderr=io.StringIO(), skip_checks=True)
    found: Json = json.loads(out.getvalue().splitlines()[-1])
    return found


def refused(*args: str, code: int = 1) -> str:
    """Why `archive` did not do it."""
    try:
        command(*args)
    except CommandError as error:
        assert error.returncode == code, error
        return str(error)
    raise AssertionError("it was done")


def away(folder: Path, *args: str) -> Json:
    """Everything that ended ninety days ago goes into the folder."""
    return command("--older-than", "90", "--to", str(folder), *args)


def aged(*runs: Run, days: int = 100) -> None:
    """They came in and ended so many days ago, and nothing of them is watched any more."""
    for run in runs:
        at = dbtime.now() - timedelta(days=days)
        ended = at if run.completed_at is not None else None
        Run.objects.filter(pk=run.pk).update(created_at=at, completed_at=ended)
        Write.objects.filter(run=run).update(watch_at=None)


def cells() -> Cells:
    """Every row of every table, as the driver returns it."""
    found = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            rows = [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in cursor.fetchall()]
            found[table] = sorted(rows, key=repr)
    return found


def differing(before: Cells) -> set[str]:
    """Tables that are no longer what they were."""
    return {table for table, rows in cells().items() if rows != before[table]}


def is_empty(run: Run) -> bool:
    """Whether what an archive takes is out of the run's rows."""
    payloads = Event.objects.filter(run=run, payload__isnull=False).exclude(archived.STAYS)
    raw = Turn.objects.filter(run=run).exclude(raw="")
    told = Observation.objects.filter(run=run, source="search_policy", kind="result")
    return not payloads.exists() and not raw.exists() and all(o.content.get("archived") is True for o in told)


def only_file(folder: Path) -> Path:
    [path] = folder.glob("archive-*.jsonl")
    return path
