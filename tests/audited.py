"""Somebody's hands in the record of runs, and what `verify_audit` says of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command
from django.db import connection

from agentsite import clock
from runs.models import Event, Run
from runs.store import events

Json = dict[str, Any]


def verified(*args: str) -> tuple[int, Json]:
    """Exit code and data of the command."""
    out = io.StringIO()
    try:
        call_command("verify_audit", *args, "--json", stdout=out, stderr=io.StringIO(), skip_checks=True)
    except CommandError as error:
        return error.returncode, json.loads(out.getvalue()) if out.getvalue() else {"error": str(error)}
    return 0, json.loads(out.getvalue())


def fault(*args: str) -> tuple[int, str | None, str]:
    """(seq, type, kind) of the one fault there is."""
    code, found = verified(*args)
    assert code == 1 and found["faulty"] == 1, found
    [one] = found["faults"]
    return one["seq"], one["type"], one["kind"]


def no_logs(tmp_path: Path) -> tuple[str, str]:
    """As on a host that kept none: the chain alone has to tell."""
    empty = tmp_path / "none.jsonl"
    empty.touch()
    return "--anchors", str(empty)


def rows(run: Run) -> Any:
    return Event.objects.filter(run=run)


def at(run: Run, seq: int) -> Event:
    return Event.objects.get(run=run, seq=seq)


def put(run: Run, seq: int, **columns: Any) -> None:
    """Changes columns of a row by hand, as SQL takes them."""
    sets = ", ".join(f"{name} = %s" for name in columns)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE runs_event SET {sets} WHERE id = %s", [*columns.values(), at(run, seq).pk])


def settle_row(run: Run) -> None:
    """The run's own row says what its rows say, as a careful hand would leave it."""
    last = rows(run).order_by("-seq").first()
    assert last is not None
    Run.objects.filter(pk=run.pk).update(last_seq=last.seq, chain_head=last.mac)


def renumber(run: Run, first: int, by: int) -> None:
    """Moves every row from a number on by one, in the order that the index allows."""
    moved = rows(run).filter(seq__gte=first).order_by("-seq" if by > 0 else "seq")
    for pk, seq in list(moved.values_list("pk", "seq")):
        Event.objects.filter(pk=pk).update(seq=seq + by)


def cut(run: Run, rows_: int) -> int:
    """Takes rows off the tail, the run's row with them; the number of the first that is gone."""
    last = run.last_seq - rows_
    rows(run).filter(seq__gt=last).delete()
    settle_row(run)
    meta = rows(run).filter(type="run.status").order_by("-seq").values_list("meta", flat=True).first() or {}
    Run.objects.filter(pk=run.pk).update(status=meta["to"], reason=meta["reason"], outcome=None)
    return last + 1


def sign_anew(run: Run, change: Callable[[Event], Any], first: int) -> None:
    """Whoever holds the key writes another history and signs all of it."""
    prev = at(run, first - 1).mac
    key_id, secret = events.signing_key()
    for row in rows(run).filter(seq__gte=first).order_by("seq"):
        if row.seq == first:
            change(row)
        row.digest = events.payload_digest(row.salt, row.payload)
        signed = events.signed_part(
            run_id=str(run.pk), seq=row.seq, type_=row.type, at=clock.rfc3339(row.at), version=row.version,
            span=row.span, meta=row.meta,
        )  # fmt: skip
        row.prev, row.key_id, row.mac = prev, key_id, events.chain_mac(secret, prev, signed, row.digest)
        Event.objects.filter(pk=row.pk).update(
            **{n: getattr(row, n) for n in ("payload", "digest", "prev", "mac", "meta")}
        )
        prev = row.mac
    settle_row(run)
