"""Runs refund-8472 many times in this one process under a profiler: where the time goes, which statements, how often.

    python -m tests.bench.profile_loop --runs 50 --database postgres [--passes 6] [--top 45] [--bare]

`--bare` times the loop without the profiler. Hints are counted, not sent. Threads for parallel reads have profiles of
their own, added to the whole.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import re
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from runs.bench import resources, wal
from runs.chaos.ground import EMBEDDED, POSTGRES_REDIS, Ground, clean_environment
from tests.bench import instant

SHORT = 110
NAMES = "SELECT relfilenode::bigint, relname FROM pg_class WHERE relfilenode <> 0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--top", type=int, default=45)
    parser.add_argument("--bare", action="store_true", help="no profiler: honest times")
    parser.add_argument("--out", default="", help="where the raw profile goes, for pstats or snakeviz")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, Ground() as ground:
        setup = POSTGRES_REDIS if given.database == "postgres" else EMBEDDED
        _configure(ground.new_store(setup, Path(folder)), Path(folder), given.passes)
        log = wal.Log(ground.cluster) if setup == POSTGRES_REDIS else None
        _measure(given, Path(folder), log)


def _configure(database: str, folder: Path, passes: int) -> None:
    own = clean_environment(
        DATABASE_URL=database, VAR_DIR=str(folder), COMMERCE_URL=instant.URL, AGENT_MODELS=instant.ROUTE,
        AGENT_PASSES_PER_TASK=str(passes), DJANGO_SETTINGS_MODULE="agentsite.settings", LEASE_S="15",
    )  # fmt: skip
    os.environ.clear()
    os.environ.update(own)
    import django

    shown = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = (folder / "log").open("w")  # the log's lines are written, and not shown
    django.setup()
    sys.stdout, sys.stderr = shown


def _measure(given: argparse.Namespace, folder: Path, log: wal.Log | None) -> None:
    from tests.bench import ours

    refunds = folder / "refunds"
    refunds.mkdir()
    instant.install(refunds)
    person = ours.prepare()
    hints = _count_hints()
    _one("warm0", person), _one("warm1", person), _one("warm2", person)
    orders = [f"p{n}" for n in range(given.runs)]
    statements, profiler = Counter[str](), None if given.bare else _Profiler()
    hints.clear()
    before, spans = _cpu_s(), list[tuple[float, float]]()
    servers = resources.family(log.pid) if log else []
    served = resources.cpu_s(servers)
    mark = log.mark() if log else ""
    with _statements(statements) if profiler else _nothing(), profiler or _nothing():
        for order in orders:
            spans.append(_one(order, person))
    cpu_s = _cpu_s() - before
    served = resources.cpu_s(servers) - served
    ours.judge(refunds, orders)
    print(f"{given.runs} runs on {given.database}, {given.passes} passes a task{'' if given.bare else ', PROFILED'}")
    a_run = 1000 / given.runs
    print(f"CPU: this process {cpu_s * a_run:.2f}, database server {served * a_run:.2f} ms a run")
    for name, of_one in zip(("admit and decide", "the engine"), zip(*spans, strict=True), strict=True):
        ordered = sorted(of_one)
        print(f"{name}: p50 {ordered[len(ordered) // 2] * 1000:.2f} ms, mean {sum(ordered) * a_run:.2f} ms")
    print("hints a run:", {queue: round(n / given.runs, 2) for queue, n in hints.items()})
    if log is not None:
        written = log.since(mark)
        kb = written.bytes / given.runs / 1000
        print(f"durable commits a run: {written.commits / given.runs:.2f}, WAL {kb:.2f} KB")
        print("\n== WAL a run\n" + "\n".join(_by_relation(written, os.environ["DATABASE_URL"], given.runs)))
    if profiler is not None:
        _show(statements, given.runs, profiler, given)


def _one(order: str, person: Any) -> tuple[float, float]:
    """Seconds (by the doors, by the engine) that one run took."""
    from runs.advance import advance
    from tests.bench import ours

    began = time.perf_counter()
    run_id = ours.admit(order)
    admitted = time.perf_counter()
    while advance(run_id) is not None:
        pass
    asked_at = time.perf_counter()
    ours.approve_run(run_id, person)
    decided = time.perf_counter()
    while advance(run_id) is not None:
        pass
    ended = time.perf_counter()
    return (admitted - began) + (decided - asked_at), (asked_at - admitted) + (ended - decided)


def _count_hints() -> Counter[str]:
    from agentsite import queues

    sent = Counter[str]()

    def send(task: str, args: list[Any], queue: str, *, insist: bool, trace_id: str = "") -> bool:
        sent[f"{task} on {queue}"] += 1
        return True

    queues.__dict__["_send"] = send
    return sent


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _statements(counts: Counter[str]) -> Iterator[None]:
    """Counts what this thread's connection is asked to do, by the beginning of its text and who asked."""
    from django.db import connection
    from django.db.backends.base.base import BaseDatabaseWrapper

    from agentsite.statements import _Prepared

    prepared = _Prepared.execute

    def hot(self: _Prepared, sql: str, params: Any = None) -> Any:
        return note(lambda *_: prepared(self, sql, params), sql, params, False, None)

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        words = re.sub(r"\s+", " ", str(sql)).strip()
        words = re.sub(r"SELECT .{60,}? FROM", "SELECT … FROM", words)
        words = re.sub(r"IN \((%s, )+", "IN (", re.sub(r"SAVEPOINT .*", "SAVEPOINT", words))
        counts[f"{_asker():34} {words[:SHORT]}"] += 1
        return execute(sql, params, many, context)

    commit = BaseDatabaseWrapper.__dict__["_commit"]

    def committed(self: BaseDatabaseWrapper) -> None:
        counts[f"{_asker():34} COMMIT"] += 1
        commit(self)

    BaseDatabaseWrapper._commit = committed  # type: ignore[attr-defined]
    _Prepared.execute = hot  # type: ignore[method-assign]
    with connection.execute_wrapper(note):
        yield
    BaseDatabaseWrapper._commit = commit  # type: ignore[attr-defined]
    _Prepared.execute = prepared  # type: ignore[method-assign]


def _asker() -> str:
    """The nearest caller in code of ours: file and function."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(one in name for one in ("/site-packages/", "contextlib", "profile_loop", "statements.py")):
            return f"{'/'.join(name.split('/')[-2:])}:{frame.f_code.co_name}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "?"


class _Profiler:
    """Profiles this thread, and every thread begun inside the block."""

    def __enter__(self) -> None:
        self._all = [cProfile.Profile()]
        self._run = threading.Thread.run
        profiles, run = self._all, self._run

        def profiled(thread: threading.Thread) -> None:
            if thread.daemon and thread.name == "lease-keeper":
                return run(thread)
            mine = cProfile.Profile()
            profiles.append(mine)
            mine.enable()
            try:
                return run(thread)
            finally:
                mine.disable()

        threading.Thread.run = profiled  # type: ignore[method-assign,assignment]
        self._all[0].enable()

    def __exit__(self, *_: object) -> None:
        self._all[0].disable()
        threading.Thread.run = self._run  # type: ignore[method-assign]

    def stats(self) -> pstats.Stats:
        found = pstats.Stats(self._all[0], stream=sys.stdout)
        for further in self._all[1:]:
            further.create_stats()
            if further.stats:
                found.add(further)
        return found


def _show(statements: Counter[str], runs: int, profiler: _Profiler, given: argparse.Namespace) -> None:
    print(f"\n== statements: {sum(statements.values()) / runs:.1f} a run")
    for words, count in statements.most_common():
        print(f"{count / runs:6.2f}  {words}")
    stats = profiler.stats()
    if given.out:
        stats.dump_stats(given.out)
    for order in ("cumulative", "tottime"):
        print(f"\n== by {order}, all {runs} runs")
        stats.sort_stats(order).print_stats(given.top)


def _by_relation(written: wal.Written, database: str, runs: int) -> list[str]:
    """KB and records a run, by relation and kind of change, the largest first."""
    with psycopg.connect(database, autocommit=True) as link:
        names = {str(number): str(name) for number, name in link.execute(NAMES)}
    return [
        f"{size / runs / 1000:7.2f} KB {written.records[act, number] / runs:6.2f} ×  "
        f"{names.get(number, number):44} {act}"
        for (act, number), size in written.by_place.most_common(40)
    ]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
