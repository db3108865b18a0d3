"""How many messages went into a broker, and how many passes the runs made of them. Imports no Django.

Messages are counted by the broker: a queue of Celery's on Redis is a list, a publish is one LPUSH on it, and nothing
else of a site pushes (events and remote control are PUBLISH; what a dead worker held comes back by RPUSH). Passes are
counted by the database: a trigger of the test's own sees each claim. `FLUSHALL` clears neither count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
import redis

COUNT_CLAIMS = """
CREATE SEQUENCE scale_claims;
CREATE FUNCTION scale_claimed() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM nextval(''scale_claims''); RETURN NULL; END';
CREATE TRIGGER scale_claims AFTER UPDATE OF lease_token ON runs_run FOR EACH ROW
    WHEN (NEW.lease_token IS NOT NULL AND NEW.lease_token IS DISTINCT FROM OLD.lease_token)
    EXECUTE FUNCTION scale_claimed()
"""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """`published` messages by all processes, `restored` ones that dead workers had held, `passes` begun."""

    published: int
    restored: int
    passes: int

    @property
    def a_pass(self) -> float:
        return self.published / self.passes


def count_claims(database: str) -> None:
    """From now on, `passes_of` tells; a site that is asked for passes needs this before its first one."""
    with psycopg.connect(database, autocommit=True) as postgres:
        postgres.execute(COUNT_CLAIMS)


def passes_of(database: str) -> int:
    with psycopg.connect(database, autocommit=True) as postgres:
        row = postgres.execute("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM scale_claims").fetchone()
    assert row is not None
    return int(row[0])


def measure(broker: str, database: str) -> Traffic:
    """Since the broker started and `count_claims`."""
    with redis.Redis.from_url(broker) as client:
        stats: dict[str, Any] = client.info("commandstats")
    calls = {name: int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("lpush", "rpush")}
    return Traffic(published=calls["lpush"], restored=calls["rpush"], passes=passes_of(database))


def flush(broker: str) -> int:
    """FLUSHALL; how many messages waited in it just before."""
    with redis.Redis.from_url(broker) as client:
        waited = sum(int(client.llen(key)) for key in client.keys("*") if client.type(key) == b"list")
        client.flushall()
    return waited
