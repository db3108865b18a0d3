"""Door: judges recorded runs by today's rules, under a changed profile if one is given. Writes and calls nothing."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from agentsite import clock
from agentsite.canonical import NotStrictJson, strict_loads
from agentsite.tenants import profiles
from agentsite.tenants.profiles import Profile
from agentsite.text import visible
from runs import replay
from runs.management import output, schema
from runs.management.base import SiteCommand
from runs.management.finding import find_run
from runs.models import Run
from runs.replay import dry
from tools.contracts import Json

MAX_BYTES = 64 * 1024 * 1024
DAYS, LIMIT, MAX_SHOWN, MAX_NAMED = 30, 1_000, 200, 20
MOST = {"since": 36_500, "limit": 1_000_000}
USAGE = 2


@dataclass
class _Tally:
    """What was judged, and which runs could not be: each with why."""

    judged: list[dry.Judged] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def changed(self) -> list[dry.Judged]:
        return [one for one in self.judged if one.changes]

    def wire(self) -> Json:
        return {
            "runs": len(self.judged), "decisions": sum(one.decisions for one in self.judged),
            "other_rule": sum(one.other_rule for one in self.judged), "changes": dry.totals(self.judged),
            "would_differ": [one.wire() for one in self.changed],
            "not_judged": [{"run": run, "why": why} for run, why in self.left_out],
        }  # fmt: skip


class Command(SiteCommand):
    help = (
        "Judge the gate's recorded decisions anew: by today's rules, and with --profile under its grants in place of "
        "those that each run was admitted with. Lists the decisions that would differ. Calls no model and no tool and "
        "writes nothing. Exit codes: 0 nothing differs, 1 something does or nothing could be judged, 2 usage."
    )
    needs_database = False  # files are judged without one

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", nargs="*", metavar="RUN|FILE", help="files of `export_run`, or run, request or "
                            "trace ids; none: the stored runs that --tenant, --since and --limit name")  # fmt: skip
        parser.add_argument("--profile", metavar="FILE", help="a profile as `create_tenant` takes it")
        parser.add_argument("--tenant", help="whose runs; needed with --profile where no run is named")
        parser.add_argument("--since", type=int, metavar="DAYS", help=f"runs of the last so many days ({DAYS})")
        parser.add_argument("--limit", type=int, metavar="N", help=f"the newest so many runs ({LIMIT})")
        parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        profile = _profile(options["profile"]) if options["profile"] else None
        _fits(options)
        found = _judged(options, profile)
        if options["json"]:
            output.data(self.stdout, found.wire())
        else:
            self._tell(found, profile)
        if differing := sum(len(one.changes) for one in found.judged):
            raise CommandError(_counted(differing, "decision") + " would differ")
        if found.left_out and not found.judged:
            raise CommandError("no run could be judged")

    def _tell(self, found: _Tally, profile: Profile | None) -> None:
        whole = found.wire()
        rows = [(run, change) for run in found.changed for change in run.changes]
        if rows:
            output.show(self.stdout, _table(rows[:MAX_SHOWN]))
            more = f"\n… and {len(rows) - MAX_SHOWN} more (--json lists all)" if len(rows) > MAX_SHOWN else ""
            output.say(self.stdout, more)
            output.show(self.stdout, _totals(whole["changes"]))
        by = "today's rules under the given profile" if profile is not None else "today's rules"
        judged = f"{_counted(whole['decisions'], 'decision')} of {_counted(whole['runs'], 'run')}"
        same = "" if rows else "; none would differ"
        output.say(self.stdout, f"{judged} judged by {by}{same}.")
        if whole["other_rule"]:
            output.say(self.stdout, f"{_counted(whole['other_rule'], 'decision')} the same by a rule of another name.")
        self._left_out(found.left_out)

    def _left_out(self, left_out: list[tuple[str, str]]) -> None:
        if left_out:
            output.say(self.stdout, f"{_counted(len(left_out), 'run')} not judged:")
            for run, why in left_out[:MAX_NAMED]:
                self.stdout.write(f"  {visible(run)}: {visible(why)}")
            if len(left_out) > MAX_NAMED:
                self.stdout.write(f"  … and {len(left_out) - MAX_NAMED} more (--json lists all)")


def _fits(options: dict[str, Any]) -> None:
    """Raises CommandError, exit code 2, for options that say nothing together."""
    named = bool(options["run"])
    if options["profile"] and not named and not options["tenant"]:
        raise CommandError("--profile needs --tenant: whose runs would have it", returncode=USAGE)
    for name in ("since", "limit"):
        value = options[name]
        if value is not None and (named or not 1 <= value <= MOST[name]):
            words = "says nothing about runs that are named" if named else f"is a whole number from 1 to {MOST[name]}"
            raise CommandError(f"--{name} {words}", returncode=USAGE)


def _profile(name: str) -> Profile:
    try:
        return profiles.parse(strict_loads(Path(name).read_text(encoding="utf-8")))
    except (OSError, NotStrictJson, UnicodeDecodeError) as error:
        raise CommandError(f"{name}: {error}", returncode=USAGE) from None
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False)[:5])
        raise CommandError(f"{name}: {faults}", returncode=USAGE) from None


# --- which runs -------------------------------------------------------------------------------------------------


def _judged(options: dict[str, Any], profile: Profile | None) -> _Tally:
    tally, tenant = _Tally(), options["tenant"]
    for name, document in _named(options["run"], tenant) if options["run"] else _stored(options):
        try:
            one = dry.judge(document, profile)
        except replay.BadRecord as error:
            tally.left_out.append((name, str(error)))
            continue
        if tenant is not None and one.tenant_id != tenant:
            tally.left_out.append((name, f"a run of tenant {one.tenant_id}"))
        elif profile is not None and one.agent != profile.agent:
            tally.left_out.append((name, f"a run of agent {one.agent}"))
        else:
            tally.judged.append(one)
    return tally


def _named(names: list[str], tenant: str | None) -> Iterator[tuple[str, Json]]:
    for name in names:
        if os.path.isfile(name):  # noqa: PTH113 - False for what can be no name of a file
            yield name, _loaded(Path(name))
            continue
        _reachable()
        yield name, _exported(find_run(name, tenant))


def _stored(options: dict[str, Any]) -> Iterator[tuple[str, Json]]:
    """Newest first, one at a time: a record is large."""
    _reachable()
    since = clock.now() - timedelta(days=options["since"] or DAYS)
    rows = Run.objects.filter(created_at__gte=since).order_by("-created_at", "-id")
    if options["tenant"]:
        rows = rows.filter(tenant_id=options["tenant"])
    for run_id in list(rows.values_list("id", flat=True)[: options["limit"] or LIMIT]):
        yield str(run_id), _exported(Run.objects.get(id=run_id))


def _reachable() -> None:
    away = schema.unreachable()
    if away is not None:
        raise CommandError(away)


def _exported(run: Run) -> Json:
    """Written and read like a file, so that both ways judge the same thing."""
    document: Json = json.loads(replay.text(replay.export(run)))
    return document


def _loaded(path: Path) -> Json:
    if path.stat().st_size > MAX_BYTES:
        raise CommandError(f"{path}: more than {MAX_BYTES // 1024 // 1024} MB", returncode=USAGE)
    try:
        document: Json = strict_loads(path.read_text(encoding="utf-8"))
    except (NotStrictJson, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {error}", returncode=USAGE) from None
    return document


# --- how it is told ---------------------------------------------------------------------------------------------


def _table(rows: list[tuple[dry.Judged, dry.Change]]) -> Table:
    table = output.table("run", "action", "amount", "was", "would be", "by the numbers", title="Would differ")
    for run, change in rows:
        table.add_row(
            Text(visible(run.request_id)), Text(visible(f"{change.tool or ''} {change.target}".strip())),
            Text(_amount(change.amount)), Text(_decision(change.was), style="dim"),
            Text(_decision(change.now), style="bold"), Text(visible(_numbers(change.numbers))),
        )  # fmt: skip
    return table


def _totals(changes: Json) -> Table:
    table = output.table("what would become of them", "actions", "money")
    for kind, row in changes.items():
        sums = ", ".join(f"{amount} {currency}" for currency, amount in sorted(row["money"].items()))
        table.add_row(Text(dry.CHANGES[kind]), Text(str(row["count"])), Text(sums))
    return table


def _decision(told: Json) -> str:
    people = {1: " (one person)", 2: " (two people)"}.get(told["people"], "")
    return visible(f"{told['decision']}{people}: {told['rule']}" if told["rule"] else told["decision"])


def _amount(wire: Json | None) -> str:
    return visible(f"{wire['amount']} {wire['currency']}") if wire else ""


def _numbers(moved: Json) -> str:
    pairs = ((name, *pair) for numbers in moved.values() for name, pair in numbers.items())
    return "; ".join(f"{name} {_value(then)} → {_value(now)}" for name, then, now in pairs)


def _value(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict) and value.keys() == {"amount", "currency"}:
        return _amount(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
