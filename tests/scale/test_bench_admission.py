"""`bench admission` in small; and its client, which sends when a request is due and not when the last was answered."""

from __future__ import annotations

import asyncio
import threading
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from agentsite.private.processes import HOST
from runs.bench import numbers, openloop
from runs.bench.admission import Figures
from tests.scale.benched import bench

FIGURES = Figures(
    rate=200.0, seconds=1.0, workers=False, sent=200, admitted=200, refused={}, runs=200, twice=0, p50_ms=5.0,
    p95_ms=9.0, p99_ms=9.0, most_ms=9.0, late_ms=0.1, cpu_ms=4.0, load=(0.0, 0.0),
)  # fmt: skip
SLOW_S = 0.05


@contextmanager
def one_at_a_time(answer: bytes | None) -> Iterator[str]:
    """A server that sees to one request after the other, SLOW_S each; without an answer it hangs up. Its URL."""
    loop, ready, url = asyncio.new_event_loop(), threading.Event(), list[str]()

    async def serve() -> None:
        turn = asyncio.Lock()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while b"content-length: 2" in (await reader.readuntil(b"\r\n\r\n")).lower():
                await reader.readexactly(2)
                async with turn:
                    await asyncio.sleep(SLOW_S)
                if answer is None:
                    break
                writer.write(answer)
            writer.close()

        server = await asyncio.start_server(talk, HOST, 0)
        url.append(f"http://{HOST}:{server.sockets[0].getsockname()[1]}/runs")
        ready.set()
        await asyncio.Event().wait()

    async def until_told() -> None:
        task.cancel()

    def run() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            loop.run_until_complete(asyncio.sleep(0))

    task = loop.create_task(serve())
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait(10)
    yield url[0]
    asyncio.run_coroutine_threadsafe(until_told(), loop).result(10)
    thread.join(10)


def test_open_loop_times_a_request_from_when_it_was_due() -> None:
    with one_at_a_time(b"HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\n\r\nyes") as url:
        answers = openloop.post(url, [b"{}"] * 10, headers={}, rate=1000, limit_s=30)
    assert answers.statuses == {202: 10}
    assert len(answers.took_ms) == 10
    # Ten took half a second one after the other, the last was due after nine milliseconds: waiting its turn counts.
    assert answers.at(1) >= 10 * SLOW_S * 1000 - 9 - 1


def test_open_loop_counts_a_connection_that_broke_as_no_answer() -> None:
    with one_at_a_time(None) as url:
        answers = openloop.post(url, [b"{}"] * 3, headers={}, rate=1000, limit_s=30)
    assert answers.statuses == {openloop.NO_ANSWER: 3}


@pytest.mark.own_services
@pytest.mark.long
@pytest.mark.timeout(300)
def test_bench_admission_counts_every_run_once() -> None:
    found = bench("admission", "--rate=10", "--seconds=2")
    assert (found["sent"], found["admitted"], found["runs"], found["twice"]) == (20, 20, 20, 0)
    assert found["refused"] == {}
    assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"] <= found["most_ms"]


@pytest.mark.parametrize(("changes", "fails"), [
    ({}, False), ({"admitted": 199, "refused": {"503": 1}}, True), ({"runs": 199}, True), ({"twice": 1}, True),
])  # fmt: skip
def test_bench_admission_fails_where_a_request_is_not_one_run(changes: dict[str, object], fails: bool) -> None:
    assert (replace(FIGURES, **changes).fault is not None) is fails  # type: ignore[arg-type]


@pytest.mark.parametrize(("share", "value"), [(0.01, 1.0), (0.5, 2.0), (0.75, 3.0), (0.76, 4.0), (1, 4.0)])
def test_percentile_is_a_measured_value(share: float, value: float) -> None:
    assert numbers.nearest([3.0, 1.0, 4.0, 2.0], share) == value


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        numbers.nearest([], 0.5)


@pytest.mark.parametrize("wrong", ["", "0", "x", "4,4", "8,4", "4,,8", "-1", "4.5"])
def test_lengths_of_runs_are_rising_whole_numbers(wrong: str) -> None:
    with pytest.raises(ArgumentTypeError):
        numbers.wholes(1)(wrong)


def test_lengths_of_runs_are_read_in_order() -> None:
    assert numbers.wholes(1)("4,16,64") == (4, 16, 64)
    assert numbers.ratio(3.0, 2.0) == 1.5
    assert numbers.ratio(3.0, 0.0) is None
