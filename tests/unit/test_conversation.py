"""Any history in any window becomes a request that no provider refuses: each call with its one result, each result with
its call, within the budget, the same bytes for the same state, and the past as the last request had it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runs import sizes
from runs.compaction import grouped
from runs.contracts import Prompt, RunState
from runs.inert import inert_json
from runs.inference import offline
from runs.prompt import build_prompt
from tests.models import strict
from tests.unit import conversations as made
from tests.unit.states_8472 import TOOLS, state
from tools.contracts import Json

SPOKEN = ("openai", "mistral", "anthropic", "anthropic_xml")
EXAMPLES = settings(
    max_examples=150, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
WINDOWS = st.sampled_from([2.0, 1.6, 2.5, 1.8, 3.0, 1.4, 4.0, 1.2, 1_000.0, 1.1, 1.02, 0.5])
"""A window, in sizes of a prompt without any past."""
TAILS = st.sampled_from([0, 300, 500, 800, 2_000, 100_000])
LINE = re.compile(r"(<(goal|call|observation|unanswered|about|compacted|omitted)[ >].*|\[[345]\] .*|[a-z_]+: .*|)")
Say = Callable[[str], None]


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def tokens_of(run: RunState, window: float) -> int:
    return int(build_prompt(state(), TOOLS).estimate * sizes.ratio(run) * window)


def prompt_of(run: RunState, window: float = 1_000.0, tail: int = 10_000_000) -> Prompt:
    return build_prompt(run, TOOLS, window_tokens=tokens_of(run, window), tail_tokens=tail)


def newest_message(run: RunState) -> list[str]:
    words = [o.content for o in run.observations if o.kind == "message"]
    return [inert_json(words[-1])] if words else []


def _note_what_it_was(counts: Counter[str], run: RunState, prompt: Prompt) -> None:
    text = prompt.messages[1].content
    calls = [call for turn in grouped(run) for call in turn.calls]
    counts.update({
        "examples": 1, "requests": len(SPOKEN), "calls": len(calls), "with a turn compacted": "<compacted " in text,
        "with turns left out": "<omitted>" in text, "with a call unanswered": any(c.seen is None for c in calls),
        "with a result by reference": 'form="reference"' in text, "too large without any turn": not prompt.fits,
    })  # fmt: skip


def test_any_history_in_any_window_is_a_request_that_no_provider_refuses(say: Say) -> None:
    counts: Counter[str] = Counter()

    @EXAMPLES
    @given(steps=made.STEPS, window=WINDOWS, tail=TAILS)
    def any_history(steps: list[Any], window: float, tail: int) -> None:
        run = made.after_each(steps)[-1]
        prompt = prompt_of(run, window, tail)
        _note_what_it_was(counts, run, prompt)
        _taken_by_every_provider(prompt)

    any_history()
    say(_words(counts))


def _taken_by_every_provider(prompt: Prompt) -> None:
    bodies = {provider: made.body_of(provider, prompt) for provider in SPOKEN}
    assert {p: strict.wrong(p, body) for p, body in bodies.items()} == dict.fromkeys(SPOKEN, "")
    shown = {p: made.pairs(p, body) for p, body in bodies.items()}
    for provider, found in shown.items():
        assert all(f' call="{call}"' in result for call, result in found), provider
        assert len({call for call, _ in found}) == len(found), provider
    assert all(found == shown["openai"] for found in shown.values())


@EXAMPLES
@given(steps=made.STEPS, window=WINDOWS, tail=TAILS)
def test_any_history_keeps_its_window_and_lies_to_nobody(steps: list[Any], window: float, tail: int) -> None:
    run = made.after_each(steps)[-1]
    prompt = prompt_of(run, window, tail)
    ratio, text = sizes.ratio(run), prompt.messages[1].content
    assert prompt.estimate == sizes.of_prompt(prompt)
    assert prompt.fits is (prompt.estimate * ratio <= tokens_of(run, window))
    fixed = sizes.of_prompt(replace(prompt, turns=()))
    apart = sum(sizes.tokens(words) for words in newest_message(run)) + 200
    assert prompt.fits or (fixed + apart) * ratio > tokens_of(run, window)
    for words in newest_message(run):
        assert words in text, "the customer's newest message is not shown"
    assert [line for line in text.split("\n") if not LINE.fullmatch(line)] == []
    if "<omitted>" not in text:
        shown = set(re.findall(r"\bobs_[0-9]+\b", text))
        assert {o.obs_id for o in run.observations} <= shown, "an observation that can be cited no more"


@EXAMPLES
@given(steps=made.STEPS, window=WINDOWS, tail=TAILS)
def test_same_state_has_the_same_bytes_in_whatever_order_it_was_read(
    steps: list[Any], window: float, tail: int
) -> None:
    run = made.after_each(steps)[-1]
    other = replace(run, observations=run.observations[::-1], turns=run.turns[::-1], lease="x", version=9)
    one, two = prompt_of(run, window, tail), prompt_of(other, window, tail)
    assert one == two
    assert [json.dumps(made.body_of(p, one)) for p in SPOKEN] == [json.dumps(made.body_of(p, two)) for p in SPOKEN]


def test_request_begins_with_all_of_the_last_one_up_to_its_snapshot(say: Say) -> None:
    counts: Counter[str] = Counter()

    @EXAMPLES
    @given(steps=made.IN_ORDER)
    def one_after_the_other(steps: list[Any]) -> None:
        for before, after in pairwise([prompt_of(run) for run in made.after_each(steps)]):
            counts["pairs of requests"] += len(SPOKEN)
            _goes_on(before, after)

    one_after_the_other()
    say(_words(counts))


def _goes_on(before: Prompt, after: Prompt) -> None:
    for provider in SPOKEN:
        past = made.body_of(provider, replace(before, snapshot=""))
        last, now = made.body_of(provider, before), made.body_of(provider, after)
        head = "".join(made.flat(past))
        assert "".join(made.flat(last)).startswith(head) and "".join(made.flat(now)).startswith(head), provider
        assert (last.get("system"), last.get("tools")) == (now.get("system"), now.get("tools"))
    assert after.messages[1].content.startswith(before.messages[1].content.removesuffix(before.snapshot))


@EXAMPLES
@given(steps=made.STEPS, window=WINDOWS, tail=TAILS)
def test_offline_model_takes_a_turn_on_any_of_these_prompts(steps: list[Any], window: float, tail: int) -> None:
    turn: Json | list[Json] = json.loads(offline.answer(prompt_of(made.after_each(steps)[-1], window, tail)))
    assert turn


@pytest.mark.parametrize("provider", SPOKEN)
def test_history_without_any_tool_offered_is_told_in_words(provider: str) -> None:
    calls = [made.Call("get_order", {"order_id": "8472"}, 1, False, "result", {"order_id": "8472"})]
    prompt = build_prompt(made.after_each([made.Turn(calls)])[-1], ())
    body = made.body_of(provider, prompt)
    assert (strict.wrong(provider, body), "tool_" in json.dumps(body["messages"])) == ("", False)
    assert "obs_1" in json.dumps(body["messages"])
