"""Roof: gauges of the machine itself: processes, recovery, breakers, switches, broker, the log of heads. Only looks.

The broker is asked beside the scrape and for half a second: where it says nothing, the scrape goes on without it.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from pathlib import Path

from agentsite import env, queues
from agentsite.metrics.families import MOST, Family, Part, Sample, age
from agentsite.tenants.models import Site, Tenant
from runs import fleet
from runs.models import Process, Sweeper
from tools import breaker

BROKER_S = 0.5
KINDS = ("up", "worker")

SWEPT = Family(name="sweeper_last_pass_seconds", words="time since the last pass of recovery, -1 before the first")
SWEEP = Family(name="sweeper_pass_seconds", words="how long the last pass of recovery took")
ALIVE = Family(name="processes", labels=("kind",), words="processes of ours that said within 15 seconds that they live")
CONSUMERS = Family(name="queue_consumers", labels=("queue",), words="live processes that consume a queue")
HUNG = Family(name="processes_hung", words="live processes of ours with a thread past twice its deadline")
BREAKERS = Family(name="breakers_open", labels=("dependency",), words="circuit breakers that are not closed")
OPEN_FOR = Family(
    name="breaker_open_seconds", labels=("dependency",), words="how long the longest of them has been open"
)
STOPPED = Family(name="switches_stopped", labels=("scope",), words="stop switches that are thrown")
STOPPED_FOR = Family(
    name="switches_stopped_seconds", labels=("scope",), words="how long the longest of them has been thrown"
)
BROKER = Family(name="broker_up", words="whether the broker said how many messages wait")
DEPTH = Family(
    name="queue_depth", labels=("queue",), words="messages that wait in a queue; none where the broker is away"
)
HEADS = Family(name="heads_log_writable", words="whether this host can append to its log of the audit chain's heads")
HEADS_ROOM = Family(name="heads_log_free_bytes", words="room that is left where that log lies")


def _sweeper(now: datetime) -> Iterator[Sample]:
    row = Sweeper.objects.first()
    last = row.last_pass_at if row is not None else None
    yield SWEPT.at((now - last).total_seconds() if last else -1.0)
    yield SWEEP.at(row.last_pass_ms / 1000 if row is not None else 0)


def _fleet(now: datetime) -> Iterator[Sample]:
    seen = Process.objects.filter(seen_at__gte=now - timedelta(seconds=fleet.ALIVE_S))
    kinds, consumers, hung = Counter(dict.fromkeys(KINDS, 0)), Counter(dict.fromkeys(queues.ALL, 0)), 0
    for kind, consumed, threads in seen.values_list("kind", "queues", "hung")[:MOST]:
        kinds[kind] += 1
        consumers.update(name for name in consumed.split(",") if name in queues.ALL)
        hung += threads > 0
    yield from ALIVE.each(kinds)
    yield from CONSUMERS.each(consumers)
    yield HUNG.at(hung)


def _breakers(now: datetime) -> Iterator[Sample]:
    counted = Counter({breaker.BUSINESS_SYSTEM: 0})
    longest = {breaker.BUSINESS_SYSTEM: 0.0}
    for one in breaker.standing():
        counted[one.dependency] += 1
        longest[one.dependency] = max(longest.get(one.dependency, 0.0), age(one.opened_at, now))
    yield from BREAKERS.each(counted)
    yield from OPEN_FOR.each(longest)


def _switches(now: datetime) -> Iterator[Sample]:
    for scope, rows in (("site", Site.objects.all()), ("tenant", Tenant.objects.all())):
        since = [at for at in rows.filter(paused=True).values_list("paused_at", flat=True)[:MOST]]
        yield STOPPED.at(len(since), scope)
        yield STOPPED_FOR.at(max((age(at, now) for at in since), default=0), scope)


# --- beside the database -----------------------------------------------------------------------------------------


class _Asked:
    """The look at the broker that is still under way, so that a broker which says nothing costs one thread."""

    still: Future[dict[str, int]] | None = None


def _broker(now: datetime) -> Iterator[Sample]:
    depths = depths_of_queues()
    yield BROKER.at(depths is not None)
    yield from DEPTH.each(depths or {})


def depths_of_queues() -> dict[str, int] | None:
    """Messages that wait, by queue; None where the broker does not say so within half a second."""
    if _Asked.still is not None and not _Asked.still.done():
        return None
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queue-depth")
    _Asked.still = asked = pool.submit(lambda: {queue: queues.depth(queue) for queue in queues.ALL})
    wait([asked], timeout=BROKER_S)
    pool.shutdown(wait=False)
    try:
        return asked.result(timeout=0)
    except (TimeoutError, queues.BrokerAway):
        return None


def _heads(now: datetime) -> Iterator[Sample]:
    """A disk that takes no more heads is what `verify_audit` would find out too late."""
    log = env.read().heads_log
    there = next(path for path in (log, *log.parents) if path.exists())
    yield HEADS.at(os.access(there, os.W_OK) and not log.is_dir())
    yield HEADS_ROOM.at(shutil.disk_usage(_folder(there)).free)


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


PARTS = (
    Part(name="sweeper", families=(SWEPT, SWEEP), read=_sweeper),
    Part(name="fleet", families=(ALIVE, CONSUMERS, HUNG), read=_fleet),
    Part(name="breakers", families=(BREAKERS, OPEN_FOR), read=_breakers),
    Part(name="switches", families=(STOPPED, STOPPED_FOR), read=_switches),
    Part(name="broker", families=(BROKER, DEPTH), read=_broker, outside=True),
    Part(name="heads", families=(HEADS, HEADS_ROOM), read=_heads, outside=True),
)
