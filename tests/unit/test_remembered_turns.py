"""What a process remembers of a run's turns changes no byte of any prompt, and no more of it stays than is allowed."""

from __future__ import annotations

import dataclasses
import re
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import compaction, shown, sizes
from runs.contracts import Prompt, RunState, SeenObservation
from runs.prompt import build_prompt
from tests.unit import conversations as made
from tests.unit.states_8472 import TOOLS, call, order, state, turns_of, write
from tests.unit.test_compaction import compacted
from tests.unit.test_conversation import EXAMPLES, TAILS, WINDOWS, tokens_of

LONG = 20
NOTE = "the parcel was left with a neighbour " * 30
NEVER = 10**9


def forget() -> None:
    shown._SIZES.forget()
    shown._SHORT.forget()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    forget()


def prompt_of(run: RunState, window: int, tail: int) -> Prompt:
    return build_prompt(run, TOOLS, window_tokens=window, tail_tokens=tail)


def reads(count: int = LONG) -> list[SeenObservation]:
    """So many turns of one read each, none of them short."""
    return [call(n, "get_order", f"m{n}.1", {**order(), "note": NOTE}) for n in range(1, count + 1)]


def text_of(told: list[SeenObservation], **changes: Any) -> str:
    return prompt_of(state(told, turns=turns_of(told), **changes), 6_000, 500).messages[1].content


def test_prompt_of_a_process_that_remembers_is_that_of_one_that_never_saw_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In any window, after each step, and again once it was cut smaller: the first, the warm and the bare prompt."""

    def built(few: int, run: RunState, window: int, tail: int) -> Prompt:
        monkeypatch.setattr(compaction, "FEW", few)
        return prompt_of(run, window, tail)

    @EXAMPLES
    @given(steps=made.STEPS, window=WINDOWS, tail=TAILS)
    def any_history(steps: list[Any], window: float, tail: int) -> None:
        forget()
        for run in made.after_each(steps):
            whole = tokens_of(run, window)
            for size in (whole, whole // 2 + 1):
                bare = built(NEVER, run, size, tail)
                assert built(0, run, size, tail) == bare
                assert built(0, run, size, tail) == bare
                assert bare.estimate == sizes.of_prompt(bare)
                assert [t.pieces for t in built(0, run, size, tail).turns] == [t.pieces for t in bare.turns]

    any_history()


def test_long_run_is_remembered_and_a_short_one_is_not() -> None:
    text_of(reads(compaction.FEW))
    assert (shown._SIZES.bytes, shown._SHORT.bytes) == (0, 0)
    text_of(reads(compaction.FEW + 1))
    assert shown._SIZES.bytes == (compaction.FEW + 1) * sizes.A_THING_BYTES
    assert shown._SHORT.bytes > shown._SIZES.bytes


def test_remembered_turn_is_not_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = text_of(reads())
    rendered: list[int] = []
    anew = shown.whole

    def counted(told: shown.Told) -> Any:
        rendered.append(told.number)
        return anew(told)

    monkeypatch.setattr(shown, "whole", counted)
    assert text_of(reads()) == first
    assert rendered == [int(number) for number in re.findall(r'<call id="m([0-9]+)\.1"', first)]
    assert 0 < len(rendered) < LONG // 2


def test_observation_that_was_erased_is_shown_as_erased_though_its_hash_stayed() -> None:
    told = reads()
    assert '"status": "delivered"' in text_of(told)
    gone = [dataclasses.replace(o, args={}, content={"erased": True}, meta={"erased": True}) for o in told]
    text = text_of(gone)
    assert (text.count('>{"erased": true}</observation>'), text.count("delivered")) == (LONG, 0)


def test_values_that_are_equal_and_read_otherwise_are_each_shown_as_they_are() -> None:
    def told(value: object) -> list[SeenObservation]:
        return [dataclasses.replace(o, source="other", content={"n": value, "note": NOTE}) for o in reads()]

    for value, says in ((1, "1"), (True, "true"), (1.0, "1.0"), (None, "null")):
        calls = [c for turn in compacted(text_of(told(value))) for c in turn["calls"]]
        assert len(calls) > LONG // 2
        assert {str(c["told"]["n"]) for c in calls} == {str(value)}
        assert f'"n": {says}' in text_of(told(value))


def test_write_of_a_turn_long_ago_is_told_as_it_is_now() -> None:
    told = reads()
    pending, done = (
        write("pay_9002", call_id="m2.1", state=s, refund_id=r) for s, r in (("pending", None), ("confirmed", "rf_3"))
    )
    for one in (pending, done, pending):
        [kept] = [c for turn in compacted(text_of(told, writes=(one,))) for c in turn["calls"] if "writes" in c]
        assert [(w["state"], w["refund_id"]) for w in kept["writes"]] == [(one.state, one.refund_id)]


def test_turn_of_what_is_no_plain_json_is_rendered_anew() -> None:
    class Word(str):
        __slots__ = ()

    told = [dataclasses.replace(o, content={**order(), "status": Word("delivered"), "note": NOTE}) for o in reads()]
    text = text_of(told)
    assert (shown._SIZES.bytes, shown._SHORT.bytes) == (0, 0)
    assert text == text_of(reads())


# --- how much stays -----------------------------------------------------------------------------------------------


def test_remembering_stays_within_its_bytes_and_lets_go_of_what_was_not_used_for_longest() -> None:
    known = sizes.Remembered[str](3 * (sizes.A_THING_BYTES + 100))
    for key in "abc":
        assert known.keep(key, key.upper(), 100) == key.upper()
    assert known.get("a") == "A"
    known.keep("d", "D", 100)
    assert [known.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    assert known.bytes == 3 * (sizes.A_THING_BYTES + 100)


def test_value_larger_than_all_there_is_room_for_is_not_remembered() -> None:
    known = sizes.Remembered[str](1000)
    assert known.keep("a", "A", 5000) == "A"
    assert (known.get("a"), known.bytes) == (None, 0)


def test_value_kept_twice_is_counted_once() -> None:
    known = sizes.Remembered[int](10_000)
    known.keep("a", 1, 50)
    known.keep("a", 2, 70)
    assert (known.get("a"), known.bytes) == (2, sizes.A_THING_BYTES + 70)


def test_threads_that_remember_together_keep_count() -> None:
    known = sizes.Remembered[int](20 * sizes.A_THING_BYTES)
    wrong: list[object] = []

    def work() -> None:
        for n in range(2_000):
            found = known.get(n % 50)
            if found not in (None, n % 50):
                wrong.append(found)
            known.keep(n % 50, n % 50)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, known.bytes) == ([], 20 * sizes.A_THING_BYTES)


@given(st.integers(1, 40))
def test_two_processes_have_the_same_key_of_the_same_turn(count: int) -> None:
    """Read from rows twice, nothing of a turn is the same object; its key is."""
    one, other = (compaction.grouped(state(reads(count))) for _ in range(2))
    assert [shown._digest(told) for told in one] == [shown._digest(told) for told in other]
