"""What of its past a run's model is shown: turns whole, compacted with all that must not get lost, or left out; and
results too large to show, of which nobody may conclude more than they say."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from runs import compaction, shown, sizes
from runs.contracts import Prompt, RunState, SeenObservation
from runs.inference import offline
from runs.inference.reading import read
from runs.prompt import build_prompt
from tests.unit.offline_turns import denial, message, paid, prose, turn
from tests.unit.states_8472 import (
    TOOLS,
    call,
    gathered,
    order,
    passage,
    payment,
    refund,
    seen,
    seen_turn,
    state,
    turns_of,
    wire,
    write,
)
from tools import digests
from tools.contracts import Json

HASH = "sha256:" + "ab" * 32
WINDOW, TAIL = 9_000, 1_000


def prompt_of(run: RunState, window: int = WINDOW, tail: int = TAIL) -> Prompt:
    return build_prompt(run, TOOLS, window_tokens=window, tail_tokens=tail)


def text_of(prompt: Prompt) -> str:
    return prompt.messages[1].content


def compacted(text: str) -> list[Json]:
    return [json.loads(body) for body in re.findall(r"<compacted turn=\"[0-9]+\">(.*)</compacted>", text)]


def whole(text: str) -> list[str]:
    return re.findall(r"<observation id=\"(obs_[0-9]+)\"", text)


def filling(first: int, count: int) -> list[SeenObservation]:
    """So many further turns of one read each, none of them short."""
    note = "the parcel was left with a neighbour " * 30
    return [
        call(first + n, "get_order", f"m{10 + n}.1", {**order(), "note": note}, content_hash=HASH) for n in range(count)
    ]


# --- a compacted turn ---------------------------------------------------------------------------------------------


def long_run(*more: SeenObservation, fill: int = 25, **changes: Any) -> RunState:
    noted = {"note": "n" * 900}
    read = gathered(
        of_order={**order(), **noted}, refunds=[refund("rf_1", "pay_9001", "10.00", **noted)],
        payments=[payment("pay_9001"), payment("pay_9002", **noted)], passages=[{**passage(), "text": "t" * 900}],
    )  # fmt: skip
    told = [*read, *more]
    return state([*told, *filling(50, fill)], **changes)


def test_turn_within_the_window_is_shown_whole() -> None:
    text = text_of(prompt_of(long_run(fill=2)))
    assert (compacted(text), whole(text)) == ([], ["obs_1", "obs_2", "obs_3", "obs_4", "obs_50", "obs_51"])


def test_compacted_turn_keeps_outcome_handles_and_hash_of_each_call() -> None:
    text = text_of(prompt_of(long_run(fill=15)))
    first, second = compacted(text)[:2]
    of_order, of_payments = first["calls"]
    assert (of_order["call"], of_order["tool"], of_order["args"]) == ("m1.1", "get_order", {"order_id": "8472"})
    assert (of_order["observation"], of_order["kind"]) == ("obs_1", "result")
    assert of_order["told"]["amount_due"] == wire("2000.00") and "note" not in of_order["told"]
    assert [(p["payment_id"], p["state"]) for p in of_payments["told"]["payments"]] == [
        ("pay_9001", "captured"), ("pay_9002", "captured"),
    ]  # fmt: skip
    of_policy, of_refunds = second["calls"]
    assert of_policy["told"]["passages"] == [
        {"id": "obs_3.1", "doc": "POL-REF-004", "version": 4, "section": "Duplicate captures", "current": True}
    ]
    assert of_refunds["told"]["refunds"][0]["refund_id"] == "rf_1"
    assert {entry["sha256"][:7] for entry in (of_order, of_payments, of_policy, of_refunds)} == {"sha256:"}


def test_compacted_turn_keeps_side_effect_denial_decision_and_approval() -> None:
    """M68."""
    denied = denial(5, {"error": "denied", "rule": "amount_exceeds_refundable", "numbers": {"left": "2000.00"},
                        "more": "m" * 900}, "m3.1")  # fmt: skip
    rejected = call(
        6, "issue_refund", "m4.1", {"decision": "rejected", "reason": "looks wrong", "more": "m" * 900}, kind="decision"
    )
    made = call(7, "issue_refund", "m5.1", {"refund_id": "rf_3301", "state": "succeeded", "more": "m" * 900})
    done = write("pay_9002", call_id="m5.1", refund_id="rf_3301", action_hash=HASH)
    run = long_run(denied, rejected, made, fill=15, writes=(done,))
    calls = [c for turn in compacted(text_of(prompt_of(run))) for c in turn["calls"]]
    [no, never, yes] = [c for c in calls if c["tool"] == "issue_refund"]
    assert (no["kind"], no["told"]["rule"], no["told"]["numbers"]) == (
        "denial", "amount_exceeds_refundable", {"left": "2000.00"},
    )  # fmt: skip
    assert (never["kind"], never["told"]) == (
        "decision",
        {"decision": "rejected", "reason": "looks wrong", "fields_left_out": 1},
    )
    assert yes["writes"] == [{
        "state": "confirmed", "refund_id": "rf_3301", "payment_id": "pay_9002", "order_id": "8472",
        "amount": wire("2000.00"), "approval_id": "A-2291", "action_hash": HASH,
    }]  # fmt: skip


def test_compacted_turn_keeps_the_plan() -> None:
    steps = [f"{n}: " + "look into it and compare what is left " * 4 for n in range(10)]
    planned = call(5, "plan", "m3.1", {"plan": steps}, args={"steps": steps})
    [kept] = [
        c for turn in compacted(text_of(prompt_of(long_run(planned, fill=15)))) for c in turn["calls"]
        if c["tool"] == "plan"
    ]  # fmt: skip
    assert (kept["told"], kept["args"]) == ({"plan": steps}, {"in_all": {"steps": 10}})


def test_what_the_customer_wrote_stands_whole_in_a_compacted_turn() -> None:
    text = text_of(prompt_of(long_run(message(5, "It is the second one, the one of the 20th."), fill=15)))
    assert "obs_1" not in whole(text) and "obs_5" in whole(text)
    assert '{"text": "It is the second one, the one of the 20th."}</observation>' in text


def test_call_without_a_result_is_compacted_as_one() -> None:
    run = long_run(fill=15)
    [first, *others] = run.turns
    asked = dataclasses.replace(
        first, proposals=(*first.proposals, dataclasses.replace(first.proposals[0], call_id="m1.3"))
    )
    calls = compacted(text_of(prompt_of(dataclasses.replace(run, turns=(asked, *others)))))[0]["calls"]
    assert [("observation" in c, c.get("unanswered")) for c in calls] == [(True, None), (True, None), (False, True)]


# --- the window ---------------------------------------------------------------------------------------------------


def test_oldest_turns_go_whole_when_compacting_is_not_enough_and_a_marker_counts_them() -> None:
    run = long_run(message(5, "Please hurry."), fill=120)
    prompt = prompt_of(run)
    text = text_of(prompt)
    [marker] = re.findall(r"<omitted>(.*)</omitted>", text)
    counts = json.loads(marker)
    assert prompt.fits and prompt.estimate <= WINDOW
    assert counts["turns_left_out"] > 50
    gone = counts["observations_left_out"]
    cited = set(re.findall(r"\bobs_[0-9]+\b", text)) - {"obs_5"}
    assert len(cited) == len(run.observations) - gone
    assert "Please hurry." in text, "the customer's newest message went with its turn"
    assert "obs_169" in whole(text), "the newest turn is not whole"


def test_only_the_newest_of_the_customers_messages_outlives_its_turn() -> None:
    run = long_run(message(5, "First."), message(6, "Last."), fill=120)
    text = text_of(prompt_of(run))
    assert ("First." in text, "Last." in text) == (False, True)


def test_prompt_says_that_its_fixed_parts_alone_do_not_fit() -> None:
    prompt = prompt_of(long_run(), window=1_000)
    assert (prompt.fits, len(compacted(text_of(prompt))), whole(text_of(prompt))) == (False, 0, [])
    assert prompt_of(state(), window=4_000).fits


def test_room_is_made_for_several_turns_at_once_so_that_the_past_stays_as_it_was() -> None:
    """Else the oldest whole turn would change with every turn, and no cache of prefixes would ever be hit (M98)."""
    past, changed, before = filling(1, 80), 0, ""
    for count in range(1, 81):
        prompt = prompt_of(state(past[:count], turns=turns_of(past[:count])), window=12_000, tail=3_000)
        now = text_of(prompt).removesuffix(prompt.snapshot)
        changed += not now.startswith(before)
        before = now
        assert prompt.fits
    assert 0 < changed <= 25


def test_runs_own_turns_calibrate_the_window() -> None:
    heavy = [seen_turn(n, input_tokens=6_000, estimate=3_000) for n in (1, 2)]
    run = long_run(fill=7)
    counted = dataclasses.replace(run, turns=tuple(
        dataclasses.replace(t, input_tokens=6_000, estimate=3_000) for t in run.turns
    ))  # fmt: skip
    assert (sizes.ratio(run), sizes.ratio(counted), sizes.ratio(state(turns=tuple(heavy)))) == (1.0, 2.0, 2.0)
    assert compacted(text_of(prompt_of(run))) == [] and compacted(text_of(prompt_of(counted))) != []
    assert prompt_of(counted).estimate * 2.0 <= WINDOW


@pytest.mark.parametrize(
    ("turns", "ratio"),
    [
        ([], 1.0), ([(0, 500)], 1.0), ([(500, 0)], 1.0), ([(1, 1_000)], 0.5), ([(90_000, 1_000)], 4.0),
        ([(1_000, 1_000), (2_000, 1_000)], 1.5),
    ],
)  # fmt: skip
def test_ratio_is_of_all_turns_with_both_counts_and_bounded(turns: list[tuple[int, int]], ratio: float) -> None:
    known = tuple(seen_turn(n, input_tokens=real, estimate=thought) for n, (real, thought) in enumerate(turns, start=1))
    assert sizes.ratio(state(turns=known)) == ratio


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("a" * 7, 2), ("a" * 700, 200), ("退款", 3), ("धनवापसी", 11), ("\ud800", 2), ("é" * 10, 10)],
)
def test_tokens_are_estimated_by_bytes_and_never_too_few_beyond_ascii(text: str, tokens: int) -> None:
    assert sizes.tokens(text) == tokens


# --- results too large to show ------------------------------------------------------------------------------------


def many(count: int) -> list[Json]:
    return [payment(f"pay_{n}", "20.00", note="n" * 40, captured_at="2026-10-20T09:00:00Z") for n in range(count)]


def in_a_run(payments: list[Json]) -> tuple[RunState, str]:
    run = state(
        [dataclasses.replace(o, content_hash=HASH) for o in gathered(payments=payments)], model_calls=2
    )  # fmt: skip
    return run, text_of(prompt_of(run, window=100_000, tail=100_000))


def test_large_result_is_shown_by_reference_with_every_entrys_fields_that_matter() -> None:
    """M69: the row keeps all of it, and the model may conclude from the list, which is whole."""
    payments = [*many(12), payment("pay_9001"), payment("pay_9002", note="x" * 5000)]
    run, text = in_a_run(payments)
    [body] = re.findall(r"<observation id=\"obs_2\"[^>]* form=\"reference\">(.*)</observation>", text)
    told = json.loads(body)
    assert told["reference"]["observation"] == "obs_2" and told["reference"]["sha256"] == HASH
    assert told["reference"]["bytes"] > 5000 and "xxxx" not in text
    assert [p["payment_id"] for p in told["payments"]] == [p["payment_id"] for p in payments]
    assert paid(turn(run))[1] == "2000.00", "the list is whole, so something may be proposed from it"


def test_list_too_long_even_so_is_counts_and_sums_from_which_nothing_is_proposed() -> None:
    run, text = in_a_run(many(400))
    [body] = re.findall(r"<observation id=\"obs_2\"[^>]* form=\"reference\">(.*)</observation>", text)
    told = json.loads(body)
    assert "payments" not in told and told["order_id"] == "8472"
    assert told["payments_too_many_to_show"] == {
        "count": 400, "by_state": {"captured": {"count": 400, "sums": {"INR": "8000.00"}}},
    }  # fmt: skip
    assert prose(turn(run)) == offline.UNCONFIRMED


def test_large_passages_are_whole_or_named_and_never_cut() -> None:
    found = [{**passage(), "section": f"S{n}", "text": f"clause {n} " + "w" * 900} for n in range(9)]
    told = digests.essence("search_policy", {"passages": found}, shown.MAX_RESULT_BYTES)
    assert told["passages"] == found[:3]
    assert [p["section"] for p in told["passages_not_shown"]] == ["S3", "S4", "S5", "S6", "S7", "S8"]
    assert all("text" not in p for p in told["passages_not_shown"])


def test_passages_none_of_which_is_short_enough_are_not_the_same_as_none_found() -> None:
    told = digests.essence("search_policy", {"passages": [{**passage(), "text": "w" * 9000}]}, 4096)
    assert "passages" not in told and len(told["passages_not_shown"]) == 1


def test_order_with_a_long_note_keeps_all_but_the_note() -> None:
    told = digests.essence("get_order", {**order(), "note": "n" * 9000, "more": ["x" * 9000]}, 4096)
    assert told == {k: v for k, v in order().items() if k != "note"}


def test_tool_without_a_digest_keeps_its_short_fields_and_counts_its_lists() -> None:
    content = {"id": "w_1", "amount": wire("1.00"), "rows": [1] * 500, "page": "p" * 9000}
    assert digests.essence("get_weather", content, 4096) == {
        "id": "w_1", "amount": wire("1.00"), "in_all": {"rows": 500}, "fields_left_out": 1,
    }  # fmt: skip


@pytest.mark.parametrize("tool", [*digests.DIGESTS, "another"])
@pytest.mark.parametrize(
    "content",
    [
        None, 7, "x" * 9000, [], [{}] * 9000, {}, {"payments": 5}, {"payments": [5]}, {"refunds": [{}] * 900},
        {"payments": [{"state": ["x"], "amount": "9"}] * 900, "order_id": ["x" * 9000]}, {"passages": [{"doc": None}]},
        {"payments": [{"state": f"s{n}", "amount": wire("1.00", "XXX")} for n in range(500)]},
        {f"k{n}": n for n in range(9000)}, {"order_id": "x" * 9000}, {"k" * 9000: 1, "o": {"p": {"q": 1}}},
    ],
)  # fmt: skip
def test_digest_of_any_content_is_bounded(tool: str, content: Any) -> None:
    for told in (digests.essence(tool, content, 4096), digests.handles(tool, content, 600)):
        assert len(json.dumps(told)) < 4096 + 600


def test_large_message_of_the_customer_is_shown_whole() -> None:
    text = text_of(prompt_of(state([message(1, "w" * 9000)]), window=100_000))
    assert "w" * 9000 in text and 'form="reference"' not in text


# --- how the offline model reads it -------------------------------------------------------------------------------


def test_denial_in_a_compacted_turn_still_stops_the_offline_model() -> None:
    no = denial(
        5, {"error": "denied", "rule": "amount_exceeds_refundable", "retryable": False, "more": "m" * 900}, "m3.1"
    )
    run = long_run(no, fill=15)
    prompt = prompt_of(run)
    assert "obs_5" not in whole(text_of(prompt))
    answered = json.loads(offline.answer(prompt))
    assert answered == {"final": offline.STOPPED, "evidence": ["obs_5"]}


def test_results_of_a_compacted_turn_are_not_concluded_from() -> None:
    prompt = prompt_of(long_run(fill=15))
    kinds = {o.obs_id: o.kind for o in read(prompt).observations}
    assert (kinds["obs_2"], kinds["obs_3"]) == ("compacted", "compacted")
    # The newest look at the order stands whole; the payments, which are compacted, are read again before anything.
    assert [c["tool"] for c in json.loads(offline.answer(prompt))] == ["get_payments"]


# --- turns --------------------------------------------------------------------------------------------------------


def test_second_result_of_a_call_and_one_of_no_call_stand_beside_the_turns() -> None:
    told = [*gathered()[:2], call(3, "get_order", "m1.1", order("1.00")), call(4, "get_order", "m7.1", order("2.00"))]
    run = state(told, turns=turns_of(told[:2]))
    [turn] = compaction.grouped(run)
    assert [c.seen.obs_id for c in turn.calls if c.seen] == ["obs_1", "obs_2"]
    assert [o.obs_id for o in turn.beside] == ["obs_3", "obs_4"]
    lines = text_of(prompt_of(run)).splitlines()
    assert '<about call="m7.1" tool="get_order">{"order_id": "8472"}</about>' in lines
    assert not any(' call="m7.1"' in line for line in lines if line.startswith("<observation"))


def test_observation_that_names_its_turn_stands_beside_it() -> None:
    parser = seen(3, "parser", {"error": "invalid_json"}, kind="error", span="m2")
    told = [*gathered()[:2], parser]
    run = state(told, turns=(*turns_of(told[:2]), seen_turn(2, error={"error": "invalid_json"})))
    assert [(t.number, [o.obs_id for o in t.beside]) for t in compaction.grouped(run)] == [(1, []), (2, ["obs_3"])]
