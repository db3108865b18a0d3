"""The table of statuses, against the contract's own table written out here by hand; every other pair raises (M10)."""

from __future__ import annotations

from itertools import product

import pytest

from runs.states import LIVE, TERMINAL, TRANSITIONS, IllegalTransition, On, Status, as_markdown, next_status

LIVE_STATUSES = [
    "accepted", "gathering", "action_proposed", "awaiting_approval", "approved", "executing", "executed", "verified",
    "waiting_dependency", "waiting_reply", "approval_expired",
]  # fmt: skip
TERMINAL_STATUSES = ["completed", "escalated", "cancelled", "failed"]
MAY_WAIT = ("accepted", "gathering", "action_proposed", "approved")
BACK = "back"

# from: {event: to}, row by row as the contract's section 4 has them.
CONTRACT: dict[str, dict[str, str]] = {
    "accepted": {
        "evidence_found": "accepted", "reads_proposed": "gathering", "reads_observed": "gathering",
        "output_rejected": "gathering", "message_folded": "gathering", "write_proposed": "action_proposed",
        "reply_sent": "completed",
    },
    "gathering": {
        "reads_proposed": "gathering", "reads_observed": "gathering", "output_rejected": "gathering",
        "message_folded": "gathering", "write_proposed": "action_proposed", "reply_sent": "completed",
        "asked": "waiting_reply",
    },
    "waiting_reply": {"answered": "gathering"},
    "action_proposed": {
        "gate_allowed": "approved", "gate_needs_approval": "awaiting_approval", "gate_denied": "gathering",
        "message_folded": "gathering",
    },
    "awaiting_approval": {
        "approval_granted": "approved", "approval_rejected": "gathering", "approval_expired": "approval_expired",
        "message_folded": "gathering", "message_shown": "awaiting_approval",
    },
    "approval_expired": {
        "gate_needs_approval": "awaiting_approval", "gate_allowed": "approved", "gate_denied": "gathering",
        "message_folded": "gathering",
    },
    "approved": {
        "released": "executing", "release_held": "approved", "release_denied": "gathering",
        "release_asked_afresh": "awaiting_approval", "message_folded": "gathering", "message_shown": "approved",
    },
    "executing": {
        "write_done": "executed", "write_resent": "executing", "write_undetermined": "executing",
        "write_not_made": "gathering",
    },
    "executed": {"write_verified": "verified", "write_not_shown": "executed"},
    "verified": {
        "reads_proposed": "verified", "reads_observed": "verified", "output_rejected": "verified",
        "message_folded": "verified", "write_proposed": "action_proposed", "reply_sent": "completed",
    },
    "waiting_dependency": {"dependency_back": BACK},
    "completed": {}, "escalated": {}, "cancelled": {}, "failed": {},
}  # fmt: skip
for _status in LIVE_STATUSES:
    if _status in MAY_WAIT:
        CONTRACT[_status]["dependency_down"] = "waiting_dependency"
    if _status not in ("executing", "executed", "verified"):
        CONTRACT[_status]["cancelled"] = "cancelled"
    if _status != "verified":  # from executing and executed for the write's own reasons
        CONTRACT[_status]["escalated"] = "escalated"
    CONTRACT[_status]["failed"] = "failed"  # no code can load it any more

PAIRS = [(Status(s), On(o)) for s, o in product([*LIVE_STATUSES, *TERMINAL_STATUSES], map(str, On))]
LEGAL = [(s, o) for s, o in PAIRS if o.value in CONTRACT[s.value]]
ILLEGAL = [(s, o) for s, o in PAIRS if o.value not in CONTRACT[s.value]]


def test_statuses_are_those_of_the_contract() -> None:
    assert [s.value for s in Status] == [*LIVE_STATUSES, *TERMINAL_STATUSES]
    assert ({s.value for s in LIVE}, {s.value for s in TERMINAL}) == (set(LIVE_STATUSES), set(TERMINAL_STATUSES))


@pytest.mark.parametrize(("status", "on"), ILLEGAL)
def test_illegal_pair_raises(status: Status, on: On) -> None:
    for confirmed, resume in product((False, True), (None, Status.GATHERING)):
        with pytest.raises(IllegalTransition):
            next_status(status, on, confirmed_write=confirmed, resume=resume)


@pytest.mark.parametrize(("status", "on"), [pair for pair in LEGAL if CONTRACT[pair[0]][pair[1]] != BACK])
def test_legal_pair_leads_where_the_contract_says(status: Status, on: On) -> None:
    assert next_status(status, on) == CONTRACT[status.value][on.value]


@pytest.mark.parametrize(("status", "on"), LEGAL)
def test_run_that_holds_a_confirmed_write_goes_back_to_verified_and_never_to_gathering(status: Status, on: On) -> None:
    to = CONTRACT[status.value][on.value]
    decided = status.value in ("action_proposed", "awaiting_approval", "approval_expired", "approved", "executing")
    if (to == "gathering" and decided) or on is On.APPROVAL_EXPIRED:
        assert next_status(status, on, confirmed_write=True) is Status.VERIFIED
    elif to != BACK:
        assert next_status(status, on, confirmed_write=True) == to


@pytest.mark.parametrize("resume", list(Status))
def test_dependency_that_is_back_leads_only_to_where_a_run_may_have_waited(resume: Status) -> None:
    if resume.value in MAY_WAIT:
        assert next_status(Status.WAITING_DEPENDENCY, On.DEPENDENCY_BACK, resume=resume) is resume
        return
    with pytest.raises(IllegalTransition):
        next_status(Status.WAITING_DEPENDENCY, On.DEPENDENCY_BACK, resume=resume)


def test_dependency_that_is_back_needs_a_place_to_go() -> None:
    with pytest.raises(IllegalTransition):
        next_status(Status.WAITING_DEPENDENCY, On.DEPENDENCY_BACK)


def test_no_way_leads_from_waiting_for_an_approval_to_executing() -> None:
    """The one shortcut that must not exist: an approval is consumed by the intent, from approved alone."""
    into = {s for (s, on), to in TRANSITIONS.items() if Status.EXECUTING in to and s is not Status.EXECUTING}
    assert into == {Status.APPROVED}


def test_terminal_statuses_take_nothing() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] in TERMINAL]


def test_table_for_people_has_a_line_for_every_status_and_a_cell_for_every_legal_pair() -> None:
    head, rule, *lines = as_markdown().splitlines()
    assert (head, rule) == ("| from | on → to |", "|---|---|")
    assert [line.split("`")[1] for line in lines] == [*LIVE_STATUSES, *TERMINAL_STATUSES]
    for status, line in zip(Status, lines, strict=True):
        cells = line.removeprefix(f"| `{status.value}` | ").removesuffix(" |")
        shown = {} if cells == "terminal" else dict(cell.split(" → ") for cell in cells.split("; "))
        assert {on: to.partition(" (")[0].replace("where it was", BACK) for on, to in shown.items()} == CONTRACT[status]
