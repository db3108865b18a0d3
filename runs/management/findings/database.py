"""Whether the database is there, whole, durable and on time. Part of `doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from django.db import connection

from agentsite import clock, dbtime, env
from agentsite.tenants import switches
from runs import store
from runs.management.findings.finding import Finding, fail, ok, warn

SKEW_WARN_S = 1.0
SKEW_FAIL_S = 5.0
FULL = 2


def examine(away: str | None) -> Iterator[Finding]:
    """`away` says why the database cannot be used, where it cannot."""
    if away is not None:
        yield fail("database", away)
        return
    yield _durability()
    yield ok("migrations", "none is missing")
    yield _restored()
    yield _skew()


def _restored() -> Finding:
    """Whether this host sent what the database does not know of; says so without demanding anything."""
    name, log = "restore", env.read().anchor_log
    fenced_at, demanded_at = switches.fence()
    try:
        missing = store.behind()
    except OSError as error:
        return warn(name, f"{log} cannot be read ({type(error).__name__}): an older database would go unnoticed")
    if missing is not None or demanded_at is not None:
        why = f" (a {missing.kind} of {clock.rfc3339(missing.at)} is in {log} alone)" if missing is not None else ""
        return fail(name, f"the database is an older one{why}: no write goes out until `manage.py fence`")
    fenced = f"; last fenced at {clock.rfc3339(fenced_at)}" if fenced_at is not None else ""
    return ok(name, f"the database holds what this host noted in {log}{fenced}")


def _durability() -> Finding:
    return _sqlite() if connection.vendor == "sqlite" else _postgres()


def _sqlite() -> Finding:
    journal, synchronous = _ask("PRAGMA journal_mode"), int(_ask("PRAGMA synchronous"))
    mode = getattr(connection, "transaction_mode", None)
    where = connection.settings_dict["NAME"]
    faults = [
        words for wrong, words in (
            (journal != "wal", f"journal_mode is {journal}, not WAL"),
            (synchronous < FULL, "synchronous is below FULL: a power cut may lose an intent"),
            (mode != "IMMEDIATE", "transactions do not begin IMMEDIATE: writers will fail under load"),
        ) if wrong
    ]  # fmt: skip
    if faults:
        return fail("database", f"SQLite {where}: {'; '.join(faults)}")
    return ok("database", f"SQLite {where}: WAL, synchronous FULL, transactions begin IMMEDIATE")


def _postgres() -> Finding:
    at = connection.settings_dict
    where = f"PostgreSQL {_ask('SHOW server_version')} at {at['HOST'] or 'a socket'}/{quote(str(at['NAME']))}"
    if _ask("SHOW synchronous_commit") == "off" or _ask("SHOW fsync") == "off":
        return warn("database", f"{where}: synchronous_commit or fsync is off, a power cut may lose an intent")
    return ok("database", f"{where}: commits are durable")


def _ask(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return str(cursor.fetchone()[0])


def _skew() -> Finding:
    before = clock.now()
    there = dbtime.now()
    middle = before + (clock.now() - before) / 2
    skew_s = (there - middle).total_seconds()
    words = f"the database is {abs(skew_s):.3f} s {'ahead of' if skew_s > 0 else 'behind'} this host"
    if abs(skew_s) >= SKEW_FAIL_S:
        return fail("clocks", f"{words}: keep both on time")
    return warn("clocks", words) if abs(skew_s) >= SKEW_WARN_S else ok("clocks", words)
