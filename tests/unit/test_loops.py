"""The loop detector: turns that ask nothing new, over any cycle, and what is no loop."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from agentsite.canonical import sha256
from runs import loops
from runs.contracts import SeenInput, SeenTurn
from tests.unit.states_8472 import START, proposal, seen, state, write
from tools.contracts import Json, Proposal

ORDER, PAYMENTS = ("get_order", {"order_id": "8472"}), ("get_payments", {"order_id": "8472"})
POLICY = ("search_policy", {"query": "duplicate capture refund"})
REFUND = (
    "issue_refund",
    {"order_id": "8472", "payment_id": "pay_9002", "amount": {"amount": "2000.00", "currency": "INR"}, "reason": "x"},
)
PLAN, OTHER_PLAN = ("plan", {"steps": ["read the order"]}), ("plan", {"steps": ["read the payments"]})
HELLO = ("message", {"text": "We are looking into it."})
OUTAGE = {"error": "upstream_unavailable", "retryable": True, "tool": "get_order"}
NOT_FOUND = {"error": "not_found", "retryable": False, "tool": "get_order"}
Call = tuple[str, Json]


class Told:
    """A run's record, grown turn by turn: every call is answered by what its tool answers at that time."""

    def __init__(self) -> None:
        self.run = state()
        self.answers: dict[str, tuple[str, Any]] = {}

    def asks(self, *calls: Call, error: Json | None = None) -> Told:
        """One turn and its answers."""
        number = len(self.run.turns) + 1
        turn = SeenTurn(
            number=number, route="offline:investigator", answered_model="investigator", prompt_version="1",
            proposals=self.proposals(*calls), final=None, error=error,
        )  # fmt: skip
        self.run = dataclasses.replace(self.run, turns=(*self.run.turns, turn))
        for call in turn.proposals:
            kind, content = self.answers.get(call.tool, ("result", {"of": call.tool}))
            self.sees(call.tool, content, kind=kind, call_id=call.call_id, args=call.args)
        return self

    def sees(self, source: str, content: Any, **more: Any) -> Told:
        """One observation more."""
        position = len(self.run.observations) + 1
        told = seen(position, source, content, content_hash=sha256(content), **more)
        self.run = dataclasses.replace(self.run, observations=(*self.run.observations, told))
        return self

    def proposals(self, *calls: Call) -> tuple[Proposal, ...]:
        number = len(self.run.turns) + 1
        return tuple(proposal(tool, args, f"m{number}.{n}") for n, (tool, args) in enumerate(calls, start=1))

    def streak(self, *calls: Call) -> int:
        """Of the turn that would come next."""
        return loops.new_streak(self.run, self.proposals(*calls))

    def streaks(self, *turns: Call) -> list[int]:
        """Of each turn of a row of turns with one call each, as it comes."""
        found = []
        for call in turns:
            found.append(self.streak(call))
            self.asks(call)
        return found


# --- loops -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        pytest.param([ORDER] * 5, [0, 1, 2, 3, 4], id="AAAAA"),
        pytest.param([ORDER, PAYMENTS] * 3, [0, 0, 1, 2, 3, 4], id="ABABAB"),
        pytest.param([ORDER, PAYMENTS, POLICY] * 2, [0, 0, 0, 1, 2, 3], id="ABCABC"),
        pytest.param([ORDER, ORDER, PAYMENTS, PAYMENTS], [0, 1, 0, 1], id="AABB"),
        pytest.param([ORDER, PAYMENTS, PAYMENTS, ORDER], [0, 0, 1, 2], id="ABBA"),
        pytest.param([PLAN, ORDER, PLAN, ORDER], [0, 0, 1, 2], id="the same plan between"),
        pytest.param([HELLO, HELLO, HELLO], [0, 1, 2], id="the same message"),
    ],
)
def test_row_of_turns_that_ask_nothing_new_is_counted(turns: list[Call], expected: list[int]) -> None:
    assert Told().streaks(*turns) == expected


def test_first_turn_is_new() -> None:
    assert Told().streak(ORDER) == 0


def test_calls_split_and_joined_over_turns_are_the_same_calls() -> None:
    told = Told().asks(ORDER, PAYMENTS)
    assert told.streak(ORDER) == 1
    assert told.streak(PAYMENTS, ORDER) == 1
    assert Told().asks(ORDER).asks(PAYMENTS).streak(PAYMENTS, ORDER) == 1


def test_one_new_call_among_old_ones_is_something_new() -> None:
    assert Told().asks(ORDER).streak(ORDER, PAYMENTS) == 0


def test_keys_in_another_order_are_the_same_call() -> None:
    one, other = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert Told().asks(("get_order", one)).streak(("get_order", other)) == 1


@pytest.mark.parametrize(
    "query", ["  duplicate capture refund", "duplicate\n capture \u00a0refund", "duplicate capture refund\t"]
)
def test_white_space_makes_no_other_call(query: str) -> None:
    assert Told().asks(POLICY).streak(("search_policy", {"query": query})) == 1


def test_other_words_make_another_call() -> None:
    assert Told().asks(POLICY).streak(("search_policy", {"query": "duplicate captures refund"})) == 0


def test_a_turn_that_was_no_proposal_neither_breaks_nor_lengthens_a_row() -> None:
    told = Told().asks(ORDER).asks(error={"error": "no_usable_output"}).asks(ORDER)
    assert told.asks(error={"error": "unknown_tool"}).streak(ORDER) == 2


def test_new_plans_between_hide_no_loop() -> None:
    told = Told().asks(ORDER).asks(PLAN).asks(ORDER).asks(OTHER_PLAN)
    assert told.streak(ORDER) == 2


def test_plans_alone_one_after_the_other_are_talk_without_work() -> None:
    assert Told().streaks(PLAN, OTHER_PLAN, ("plan", {"steps": ["write"]})) == [0, 1, 2]


def test_plan_beside_a_read_is_judged_by_the_read() -> None:
    assert Told().asks(ORDER).streak(PLAN, ORDER) == 1
    assert Told().asks(ORDER).streak(PLAN, PAYMENTS) == 0


def test_denied_reads_repeated_are_a_loop() -> None:
    told = Told()
    told.answers["get_order"] = ("denial", {"error": "denied", "rule": "order_out_of_scope"})
    assert told.streaks(ORDER, ORDER, ORDER) == [0, 1, 2]


def test_error_that_trying_again_does_not_change_is_an_answer() -> None:
    told = Told()
    told.answers["get_order"] = ("error", NOT_FOUND)
    assert told.streaks(ORDER, ORDER, ORDER) == [0, 1, 2]


# --- what is no loop -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "kind"),
    [("customer", "message"), ("issue_refund", "decision"), ("issue_refund", "denial"), ("issue_refund", "result")],
)
def test_reading_again_after_a_change_of_state_is_no_loop(source: str, kind: str) -> None:
    told = Told().asks(ORDER).asks(ORDER).asks(ORDER)
    assert told.streak(ORDER) == 3
    told.sees(source, {"text": "and now?"}, kind=kind)
    assert told.streak(ORDER) == 0
    assert told.asks(ORDER).streak(ORDER) == 1


def test_a_row_begins_anew_after_a_change_of_state_in_its_middle() -> None:
    told = Told().asks(ORDER).asks(ORDER).sees("customer", {"text": "hm"}, kind="message").asks(ORDER).asks(ORDER)
    assert told.streak(ORDER) == 2


def test_message_that_nobody_has_read_yet_is_a_change_of_state() -> None:
    told = Told().asks(ORDER).asks(ORDER)
    unread = SeenInput(seq=3, kind="message", text="wait", by="client", at=START)
    told.run = dataclasses.replace(told.run, inputs=(unread,))
    assert told.streak(ORDER) == 0


@pytest.mark.parametrize(("source", "kind"), [("reminder", "notice"), ("parser", "error"), ("plan", "result")])
def test_reminder_parser_error_or_plan_is_no_change_of_state(source: str, kind: str) -> None:
    told = Told().asks(ORDER).sees(source, {"of": source}, kind=kind)
    assert told.streak(ORDER) == 1


def test_denied_write_proposed_again_is_counted_by_the_gate_and_not_here() -> None:
    told = Told()
    told.answers["issue_refund"] = ("denial", {"error": "denied", "rule": "amount_exceeds_refundable"})
    assert told.streaks(REFUND, REFUND, REFUND) == [0, 0, 0]


def test_write_of_a_tool_that_is_granted_no_more_still_changes_the_state() -> None:
    told = Told().asks(ORDER).sees("old_tool", {"refund_id": "rf_1"})
    assert told.streak(ORDER) == 1
    told.run = dataclasses.replace(told.run, writes=(write("pay_9002", tool="old_tool"),))
    assert told.streak(ORDER) == 0


def test_poll_that_shows_a_change_is_something_new() -> None:
    told = Told()
    for state_of in ("pending", "pending", "succeeded"):
        told.answers["get_refund_status"] = ("result", {"state": state_of})
        told.asks(("get_refund_status", {"order_id": "8472"}))
    # The second poll showed nothing new, the third did; the fourth may be one too many again.
    assert told.streak(("get_refund_status", {"order_id": "8472"})) == 1


def test_outage_is_no_answer_so_asking_again_is_no_loop() -> None:
    told = Told()
    told.answers["get_order"] = ("error", OUTAGE)
    assert told.streaks(ORDER, ORDER, ORDER) == [0, 0, 0]
    told.answers["get_order"] = ("result", {"of": "get_order"})
    assert told.streaks(ORDER, ORDER) == [0, 1]


def test_call_that_got_no_result_may_be_made_again() -> None:
    told = Told()
    lost = SeenTurn(
        number=1, route="r", answered_model="m", prompt_version="1", proposals=told.proposals(ORDER), final=None,
        error={"error": "overtaken_by_input"},
    )  # fmt: skip
    told.run = dataclasses.replace(told.run, turns=(lost,))
    assert told.streak(ORDER) == 0


# --- what comes of it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("streak", "expected"),
    [(0, "fine"), (1, "fine"), (2, "remind"), (3, "remind"), (4, "stop"), (5, "stop")],
)
def test_judge_reminds_from_one_figure_on_and_stops_at_the_other(streak: int, expected: str) -> None:
    assert loops.judge(streak, 2, 4) == expected


@pytest.mark.parametrize("stop_at", [1, 2])
def test_judge_stops_where_both_figures_are_reached(stop_at: int) -> None:
    assert loops.judge(2, 2, stop_at) == "stop"


def test_reminder_names_the_calls_their_count_and_where_their_answer_stands() -> None:
    told = Told().asks(ORDER, PAYMENTS).asks(ORDER)
    assert loops.words(told.run, told.proposals(ORDER, PAYMENTS, ORDER), streak=2, stop_at=4) == {
        "error": "nothing_new",
        "turns_in_a_row": 2,
        "stops_at": 4,
        "calls": [
            {"tool": "get_order", "args": {"order_id": "8472"}, "times": 4, "answered_by": "obs_3"},
            {"tool": "get_payments", "args": {"order_id": "8472"}, "times": 2, "answered_by": "obs_2"},
        ],
        "instead": loops.INSTEAD,
    }


def test_stop_says_why_in_the_same_form() -> None:
    told = Told().asks(ORDER).asks(ORDER)
    stopped = loops.words(told.run, told.proposals(ORDER), streak=4, stop_at=4)
    assert (stopped["error"], stopped["instead"]) == ("loop_detected", loops.STOPPED)
    assert stopped["calls"][0]["times"] == 3


def test_reminder_counts_only_what_was_asked_since_the_last_change() -> None:
    told = Told().asks(ORDER).sees("customer", {"text": "hm"}, kind="message").asks(ORDER)
    (call,) = loops.words(told.run, told.proposals(ORDER), streak=1, stop_at=4)["calls"]
    assert (call["times"], call["answered_by"]) == (2, "obs_3")


def test_reminder_of_many_calls_stays_short() -> None:
    calls = [("search_policy", {"query": f"q{n}"}) for n in range(12)]
    told = Told().asks(*calls)
    shown = loops.words(told.run, told.proposals(*calls), streak=1, stop_at=4)["calls"]
    assert [c["args"]["query"] for c in shown] == [f"q{n}" for n in range(8)]


def test_streak_is_the_same_whenever_it_is_asked() -> None:
    told = Told().asks(ORDER).asks(PAYMENTS)
    assert [told.streak(ORDER) for _ in range(3)] == [1, 1, 1]
