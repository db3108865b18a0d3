"""Roof: gauges of writes whose end is not known, and of what the gate denied. Reads rows only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import connection

from agentsite import dbtime
from agentsite.metrics.families import BOUNDED, MOST, Family, Part, Sample, age, among
from agentsite.tenants import switches
from runs.models import OPEN_WRITES

MOST_RUNS = 200

OPEN = Family(name="writes_open", labels=("state",), words="writes whose end is not known")
UNKNOWN = Family(name="writes_unknown_oldest_seconds", words="how long the oldest unknown write has been unknown")
SETTLE = Family(
    name="writes_for_a_person", words="open writes whose run has ended: a late look settles them, or a person"
)
SETTLE_AGE = Family(name="writes_for_a_person_oldest_seconds", words="age of the oldest of them, from its intent on")
FENCE = Family(name="fence_demanded", words="1 while every write waits for `manage.py fence` after a restore")
DENIED = Family(
    name="gate_denials", labels=("rule",),
    words="proposals that the gate denied, by rule, in the newest two hundred runs that ended within the hour",
)  # fmt: skip
DECIDED = Family(name="gate_decisions", words="all that the gate decided in these runs, denials included")


def _writes(now: datetime) -> Iterator[Sample]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT state, COUNT(*), MIN(since), SUM(ended), MIN(waits) FROM (SELECT w.state AS state, "
            "COALESCE(w.unknown_since, w.intent_at) AS since, "
            "CASE WHEN r.completed_at IS NULL THEN 0 ELSE 1 END AS ended, "
            "CASE WHEN r.completed_at IS NULL THEN NULL ELSE w.intent_at END AS waits "
            "FROM runs_write w JOIN runs_run r ON r.id = w.run_id "
            f"WHERE w.state IN ({among(OPEN_WRITES)}) LIMIT %s) found GROUP BY state",
            [MOST],
        )
        found = {row[0]: row[1:] for row in cursor.fetchall()}
    yield from OPEN.each(dict.fromkeys(OPEN_WRITES, 0) | {state: row[0] for state, row in found.items()})
    yield UNKNOWN.at(age(dbtime.moment(found["unknown"][1]), now) if "unknown" in found else 0)
    yield SETTLE.at(sum(row[2] for row in found.values()))
    yield SETTLE_AGE.at(max((age(dbtime.moment(row[3]), now) for row in found.values()), default=0))
    yield BOUNDED.at(sum(row[0] for row in found.values()) >= MOST, "writes")


def _fence(now: datetime) -> Iterator[Sample]:
    yield FENCE.at(switches.fence()[1] is not None)


def _denials(now: datetime) -> Iterator[Sample]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT e.meta FROM (SELECT id FROM runs_run WHERE completed_at IS NOT NULL AND completed_at >= %s "
            "ORDER BY completed_at DESC LIMIT %s) newest JOIN runs_event e ON e.run_id = newest.id "
            "WHERE e.type = 'gate.decided'",
            [dbtime.param(now - timedelta(hours=1)), MOST_RUNS],
        )
        decided = [json.loads(meta) for (meta,) in cursor.fetchall()]
    yield DECIDED.at(len(decided))
    yield from DENIED.each(Counter(str(one.get("rule")) for one in decided if one.get("decision") == "deny"))


PARTS = (
    Part(name="writes", families=(OPEN, UNKNOWN, SETTLE, SETTLE_AGE), read=_writes),
    Part(name="fence", families=(FENCE,), read=_fence),
    Part(name="denials", families=(DENIED, DECIDED), read=_denials),
)
