"""Roof: what the site says of itself to Prometheus, read from the rows at scrape time. Writes nothing, decides nothing.

So a restart loses nothing, and any web process says the same, whichever process did the work. Counters of this process
alone stand beside the gauges. Names nobody but tenants, queues, rules and models: no customer, no order, no words. Even
so the path is for the inside: whoever puts a proxy before the site keeps `/metrics` from the world.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from socket import create_connection

from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from agentsite import clock, dbtime, queues, telemetry
from agentsite.metrics import machine, money, people, work
from agentsite.metrics.families import BOUNDED, Family, Part, Sample

CONNECT_S = 1.0
POSTGRES_PORT = 5432

DATABASE = Family(name="database_up", words="whether the database answered")
ERRORS = Family(name="scrape_errors", labels=("part",), words="1 where a part of this scrape could not be read")
TOOK = Family(name="scrape_seconds", labels=("part",), words="how long a part of this scrape took")
PARTS: tuple[Part, ...] = (*work.PARTS, *money.PARTS, *people.PARTS, *machine.PARTS)
FAMILIES: tuple[Family, ...] = (
    DATABASE, *dict.fromkeys(family for part in PARTS for family in part.families), BOUNDED, ERRORS, TOOK,
)  # fmt: skip
COUNTERS = ("anchors_failed", "heads_failed", "http_database_unavailable", "sweeps_failed")
"""Counters of this process that alerts and panels name: they stand at 0 until something fails."""


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Counters of this process, and gauges read from the database now, in the Prometheus text format."""
    _declare()
    gauges = CollectorRegistry(auto_describe=False)
    gauges.register(Gauges())
    return HttpResponse(generate_latest(REGISTRY) + generate_latest(gauges), content_type=CONTENT_TYPE_LATEST)


def _declare() -> None:
    for name in COUNTERS:
        telemetry.count(name, 0)
    for queue in queues.ALL:
        telemetry.count("nudges_lost", 0, queue=queue)


class Gauges(Collector):
    """What the rows say at this moment. A part that cannot be read is named, and takes no other with it."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        now = _database_time()
        found = [DATABASE.at(now is not None)]
        for part in PARTS:
            found += _of_part(part, now)
        for family in FAMILIES:
            yield family.text(found)


def _database_time() -> datetime | None:
    """None where the database does not answer. Who is not there is not waited for: a pool would be, for a minute."""
    at = connection.settings_dict
    try:
        if connection.vendor == "postgresql" and at["HOST"] and not str(at["HOST"]).startswith("/"):
            create_connection((at["HOST"], int(at["PORT"] or POSTGRES_PORT)), timeout=CONNECT_S).close()
        return dbtime.now()
    except (DatabaseError, InterfaceError, OSError) as error:
        telemetry.log("metrics.database_away", error=type(error).__name__)
        return None


def _of_part(part: Part, now: datetime | None) -> list[Sample]:
    if now is None and not part.outside:
        return [ERRORS.at(1, part.name)]
    began = clock.monotonic()
    try:
        read = list(part.read(now or clock.now()))
    except Exception as error:  # noqa: BLE001 - a part that is broken must not hide what the others say
        telemetry.log("metrics.part_failed", part=part.name, error=type(error).__name__)
        return [ERRORS.at(1, part.name)]
    return [*read, ERRORS.at(0, part.name), TOOK.at(clock.monotonic() - began, part.name)]
