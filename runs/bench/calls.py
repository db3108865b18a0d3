"""The scenario `calls`: many slow model calls under way at once; what that takes, and that none is lost.

Each run calls its model, reads what it proposed, calls it again and ends. Rows are read beside the site.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from runs.bench import stage
from runs.bench.observer import Observer, Seen
from runs.bench.stage import Pace, Stage

CALLS_A_RUN = 2
BASE_S, A_CALL_S = 120.0, 0.5
MOST, MOST_THREADS, LONGEST_S = 100_000, 1000, 3600
LEASE_LINE = re.compile(r'"event": "(pass\.failed|lease\.lost|lease\.renewal_failed)"')
TURNS = "SELECT count(*) FROM runs_turn"
FAILED = "SELECT count(*) FROM runs_event WHERE type = 'model.failed'"
ENDS = "SELECT status, reason, count(*) FROM runs_run GROUP BY status, reason"
HINTS = "SELECT coalesce(sum(published), 0) FROM runs_sweeper"
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """`calls` runs whose model takes `seconds` a call, streamed in `pieces`, on `workers` with `threads` threads each.

    With `hold` no call's time begins before all are under way.
    """

    calls: int
    seconds: float
    workers: int
    threads: int
    pieces: int = 1
    hold: bool = True

    @property
    def deadline_s(self) -> float:
        """Generous: past it something is stuck."""
        return BASE_S + CALLS_A_RUN * self.seconds + A_CALL_S * self.calls


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured. Times in seconds, memory in MB; None where it did not come to that.

    `lost`: runs that did not complete; `timed_out`: calls that failed; `unrecorded`: calls whose answer no run has, as
    their run was taken over. `sessions`: of the database, by all processes of the site, the most ever and the most
    while every call was under way; `busy`: of these the fewest that did something then. `load`: of the machine,
    averaged over a minute, before and after.
    """

    calls: int
    seconds: float
    workers: int
    threads: int
    most_in_flight: int
    filled_s: float
    checkpointed_s: float | None
    after_fill_s: float | None
    completed_s: float | None
    lost: int
    timed_out: int
    unrecorded: int
    ended: dict[str, int]
    trouble: dict[str, int]
    swept_hints: int
    cpu_s: float
    memory_mb: int
    sessions: int
    sessions_in_flight: int
    busy_in_flight: int | None
    load: tuple[float, float]

    @property
    def fault(self) -> str | None:
        if self.lost == self.timed_out == self.unrecorded == 0:
            return None
        return f"{self.lost} runs lost, {self.timed_out} calls timed out, {self.unrecorded} answers not recorded"

    def wire(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        return [
            ("calls", f"{self.calls} of {self.seconds:g} s on {self.workers} × {self.threads} threads"),
            ("most in flight", f"{self.most_in_flight}, {self.filled_s} s after the first"),
            ("in flight to checkpointed", _seconds(self.after_fill_s)),
            ("first call to checkpointed", _seconds(self.checkpointed_s)),
            ("first call to all runs ended", _seconds(self.completed_s)),
            ("lost", str(self.lost)), ("timed out", str(self.timed_out)), ("not recorded", str(self.unrecorded)),
            ("runs", _counted(self.ended)), ("trouble", _counted(self.trouble)),
            ("hints by the sweeper", str(self.swept_hints)),
            ("memory of the workers", f"{self.memory_mb} MB"), ("CPU of the workers", f"{self.cpu_s} s"),
            ("database sessions", f"{self.sessions} at most, {self.sessions_in_flight} while all calls were in flight"),
            ("of these busy then", "not seen" if self.busy_in_flight is None else str(self.busy_in_flight)),
            ("load of the machine", f"{self.load[0]:.1f} before, {self.load[1]:.1f} after"),
        ]  # fmt: skip


def measure(asked: Asked, say: Say) -> Figures:
    """Everything from the first server to the figures. Raises what `stage.prepared` raises."""
    orders = stage.names(asked.calls)
    say("starting private servers and the web process …")
    more = {"PASSES_THREADS": str(asked.threads), "WORKER_QUEUES": "passes"}
    pace = Pace(seconds=asked.seconds, pieces=asked.pieces, hold=asked.calls if asked.hold else 0)
    with stage.prepared(orders, pace, **more) as prepared:
        say(f"admitting {asked.calls} runs …")
        prepared.admit(orders)
        load = os.getloadavg()[0]
        say(f"starting {asked.workers} × {asked.threads} threads for passes …")
        roots = [prepared.start_worker(number) for number in range(1, asked.workers + 1)]
        seen = Observer(stage=prepared, runs=asked.calls, roots=roots).watch(asked.deadline_s)
        return _figures(asked, prepared, seen, load)


def _figures(asked: Asked, prepared: Stage, seen: Seen, load: float) -> Figures:
    counts, number = prepared.counts(), prepared.number
    ended = {" ".join(filter(None, row[:2])): int(row[2]) for row in prepared.site.rows(ENDS)}
    first_at, full_at = counts["first_at"], counts["most_at"]
    return Figures(
        calls=asked.calls, seconds=asked.seconds, workers=asked.workers, threads=asked.threads,
        most_in_flight=counts["most"], filled_s=round(full_at - first_at, 1),
        checkpointed_s=_since(first_at, seen.checkpointed_at), after_fill_s=_since(full_at, seen.checkpointed_at),
        completed_s=_since(first_at, seen.ended_at), lost=asked.calls - ended.get("completed", 0),
        timed_out=number(FAILED), unrecorded=counts["asked"] - number(TURNS), ended=ended,
        trouble=dict(Counter(LEASE_LINE.findall(prepared.logs()))), swept_hints=number(HINTS),
        cpu_s=round(seen.cpu_s, 1), memory_mb=round(seen.memory_mb), sessions=seen.sessions,
        sessions_in_flight=seen.full_sessions, busy_in_flight=seen.full_busy, load=(load, os.getloadavg()[0]),
    )  # fmt: skip


def _since(started: float, moment: float | None) -> float | None:
    return None if moment is None else round(moment - started, 1)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value} s"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


class _Calls:
    help = (
        "Many slow model calls under way at once, on workers that consume passes alone: how long until each is "
        "checkpointed, and that none is lost. Figures: time, memory (PSS) of the workers, database sessions."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--calls", type=_whole, default=400, metavar="N", help="runs, each with one under way (400)"
        )
        parser.add_argument("--seconds", type=_above_zero, default=5.0, metavar="S", help="what one call takes (5)")
        parser.add_argument("--workers", type=_whole, default=1, metavar="N", help="worker commands (1)")
        parser.add_argument("--threads", type=_whole, default=None, metavar="N", help="of each (enough for all calls)")
        parser.add_argument("--pieces", type=_whole, default=1, metavar="N", help="events a call is streamed in (1)")
        parser.add_argument(
            "--no-hold", action="store_true",
            help="a call's time begins as it comes, not when all are in flight: with a slow start they never are",
        )  # fmt: skip

    def run(self, options: Mapping[str, Any], say: Say) -> Figures:
        given, workers, hold = options["calls"], options["workers"], not options["no_hold"]
        threads = options["threads"] or min(MOST_THREADS, -(-given // workers))
        if threads > MOST_THREADS or (hold and workers * threads < given):
            raise ArgumentTypeError(
                f"{workers} × {threads} threads cannot hold {given} calls at once (at most {MOST_THREADS} a worker)"
            )
        asked = Asked(
            calls=given, seconds=options["seconds"], workers=workers, threads=threads, pieces=options["pieces"],
            hold=hold,
        )  # fmt: skip
        return measure(asked, say)


SCENARIO = _Calls()


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST:
        raise ArgumentTypeError(f"expected a whole number from 1 to {MOST}")
    return int(text)


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= LONGEST_S:
        raise ArgumentTypeError(f"expected seconds above 0, at most {LONGEST_S}")
    return number
