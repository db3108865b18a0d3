"""`bench`: the model provider it stands on speaks as a real one and holds what it is told to; usage and exits."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agentsite.private.processes import wait_until
from runs.bench import calls as scenario
from runs.bench import scenarios, stage
from runs.bench.calls import Figures
from runs.bench.goals import GOALS
from runs.bench.stage import Pace
from runs.chaos import calls
from runs.chaos.ground import SiteFailed
from runs.contracts import LLMTurnResult
from runs.inference.dialects import answers
from runs.inference.dialects.openai_native import DIALECT

pytestmark = pytest.mark.own_services
LIMIT_S = 30.0
FIGURES = Figures(
    calls=3, seconds=1.0, workers=1, threads=3, most_in_flight=3, filled_s=0.1, checkpointed_s=1.3, after_fill_s=1.2,
    completed_s=2.5, lost=0, timed_out=0, unrecorded=0, ended={"completed": 3}, trouble={}, swept_hints=0, cpu_s=0.5,
    memory_mb=99, sessions=9, sessions_in_flight=8, busy_in_flight=0, load=(0.1, 0.2),
)  # fmt: skip


@pytest.fixture(params=[1, 3], ids=["at_once", "in_pieces"])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Answers nobody before two calls are under way."""
    with stage.provider(tmp_path, Pace(seconds=0.1, pieces=request.param, hold=2)) as url:
        yield url


def ask(url: str, order: str, *, stream: bool) -> LLMTurnResult:
    body = {"model": "bench", "stream": stream, "messages": [{"role": "user", "content": f"What of {order}?"}]}
    reply = calls.call("POST", f"{url}/v1/chat/completions", body=body)
    assert reply.status == 200
    if stream:
        assert reply.headers["content-type"] == "text/event-stream"
        return answers.decode_stream(DIALECT, [reply.body])
    return answers.decode(DIALECT, reply.body)


def counts(url: str) -> dict[str, Any]:
    found: dict[str, Any] = calls.document(calls.call("GET", f"{url}/counts"))
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["json", "streamed"])
def test_provider_holds_calls_then_proposes_a_read_then_ends(provider: str, stream: bool) -> None:
    first, second = stage.names(2)
    with ThreadPoolExecutor(2) as clients:
        held = clients.submit(ask, provider, first, stream=stream)
        assert wait_until(lambda: counts(provider)["now"] == 1, LIMIT_S)
        assert not held.done()
        turns = [ask(provider, second, stream=stream), held.result(LIMIT_S)]
    proposed = [(call.name, json.loads(call.arguments)) for turn in turns for call in turn.calls]
    assert proposed == [("get_order", {"order_id": second}), ("get_order", {"order_id": first})]
    last = ask(provider, first, stream=stream)
    assert (last.text, last.calls, last.finish_reason, last.model) == (
        "Thank you for your patience.", (), "stop", "bench",
    )  # fmt: skip
    seen = counts(provider)
    assert (seen["asked"], seen["answered"], seen["most"], seen["now"]) == (3, 3, 2, 0)
    assert 0 < seen["first_at"] <= seen["most_at"]


@pytest.mark.parametrize("wrong", [["nothing"], ["refund", "--rounds=0"], ["calls", "--calls=0"],
                                   ["calls", "--seconds=-1"], ["calls", "--threads=399"],
                                   ["calls", "--calls=1001"]])  # fmt: skip
def test_bench_refuses_wrong_usage(wrong: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("bench", *wrong)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"lost": 2}, "2 runs lost, 0 calls timed out, 0 answers not recorded"),
        ({"timed_out": 1}, "0 runs lost, 1 calls timed out, 0 answers not recorded"),
        ({"unrecorded": 3}, "0 runs lost, 0 calls timed out, 3 answers not recorded"),
    ],
)
def test_bench_fails_where_something_was_lost(
    changes: dict[str, Any], fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = replace(FIGURES, **changes)
    monkeypatch.setattr(scenario, "measure", lambda asked, say: measured)
    said = io.StringIO()
    if fault is None:
        call_command("bench", "calls", "--json", stdout=said)
    else:
        with pytest.raises(CommandError, match=fault):
            call_command("bench", "calls", "--json", stdout=said)
    assert json.loads(said.getvalue()) == json.loads(json.dumps(measured.wire()))


def test_bench_without_a_scenario_judges_every_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "measure", lambda asked, say: FIGURES)
    monkeypatch.setattr(scenarios, "WHOLE", {"calls": ["--calls=3"]})
    said = io.StringIO()
    call_command("bench", "--json", stdout=said)
    told = json.loads(said.getvalue())
    assert [one["figure"] for one in told["goals"]] == [goal.figure for goal in GOALS]
    assert {one["verdict"] for one in told["goals"]} == {"not measured"}
    assert told["scenarios"] == {"calls": json.loads(json.dumps(FIGURES.wire()))}


def test_bench_in_small_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "measure", lambda asked, say: FIGURES)
    monkeypatch.setattr(scenarios, "QUICK", {"calls": ["--calls=3"]})
    said = io.StringIO()
    call_command("bench", "--quick", stdout=said)
    call_command("bench", "--quick", "--json", stdout=said)
    *words, document = said.getvalue().splitlines()
    assert "MISSED" not in "".join(words) and "not judged" in words[-1]
    assert json.loads(document)["goals"] is None


def test_bench_without_a_scenario_goes_on_where_one_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(asked: object, say: object) -> Figures:
        raise SiteFailed("the site did not start\nand a log")

    monkeypatch.setattr(scenario, "measure", failing)
    monkeypatch.setattr(scenarios, "WHOLE", {"calls": []})
    said = io.StringIO()
    with pytest.raises(CommandError, match="calls: the site did not start"):
        call_command("bench", stdout=said)
    assert "calls: not measured" in said.getvalue() and "0 aim met, 0 met, 0 MISSED" in said.getvalue()
