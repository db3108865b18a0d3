"""Cases of the past as the store tells them: whose are found, what of them is shown, what is not (M73, M100)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection

from agentsite import dbtime
from runs.models import Run
from runs.store import cases
from tests.precedents import ME, OTHER, PIN, T, contract, done, event, past

ASKED = "My order was charged twice and the refund has not arrived"
NOBODY = "00000000-0000-7000-8000-000000000000"
PLANTED = ("Quixote", "8472", "pay_9002", "rf_", "past-", OTHER, "200000", "2000.00", "Frobnitz", "lead_17", "Wibble")


def like(query: str = ASKED, *, tenant: str = T, customer: str = ME, run_id: str = NOBODY) -> list[dict[str, Any]]:
    return cases.like(tenant, customer, run_id, query)


def session(name: str = "sess_1", *, tenant: str = T, customer: str = ME, run_id: str = NOBODY) -> list[str]:
    return [case["request_id"] for case in cases.of_session(tenant, customer, name, run_id)]


pytestmark = pytest.mark.django_db


def crowd(goal: str = ASKED, *, tenant: str = T) -> None:
    """Enough other customers ask the same for its words to find their cases."""
    for number in range(cases.ENOUGH_CUSTOMERS):
        past(goal, tenant=tenant, customer=f"crowd_{number}", outcome="answered", days=9)


def theirs(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The one case that no run of the crowd is."""
    [case] = [case for case in found if case["outcome"] != "answered"]
    return case


# --- which cases ---------------------------------------------------------------------------------------------------


def test_cases_are_ranked_by_what_was_asked_and_equal_ones_by_the_newest() -> None:
    past("Where is my parcel?", request_id="parcel")
    past("I was charged twice for one order", request_id="older", days=3)
    past("I was charged twice for one order", request_id="newer", days=2)
    assert [case["request_id"] for case in like("charged twice")] == ["newer", "older"]
    assert [case["request_id"] for case in like("my parcels")] == ["parcel"]
    assert like("zebra") == []
    assert like("") == like("?!") == like("4711") == []


@pytest.mark.parametrize("outcome", cases.RESOLVED)
def test_a_case_that_came_to_an_end_of_its_own_is_a_precedent(outcome: str) -> None:
    past(ASKED, outcome=outcome)
    assert [case["outcome"] for case in like()] == [outcome]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("cancelled", "cancelled"), ("escalated", "handed_to_staff"), ("escalated", "refund_failed"), ("failed", None),
     ("gathering", None), ("awaiting_approval", None), ("executed", "refunded")],
)  # fmt: skip
def test_a_run_that_lives_or_was_not_resolved_is_none(status: str, outcome: str | None) -> None:
    past(ASKED, status=status, outcome=outcome)
    assert like() == []


def test_the_run_that_asks_is_no_precedent_of_its_own() -> None:
    run = past(ASKED, session="sess_1")
    assert (like(run_id=str(run.pk)), session(run_id=str(run.pk))) == ([], [])
    assert len(like()) == len(session()) == 1


def test_a_case_that_was_resolved_by_staff_later_tells_the_corrected_outcome() -> None:
    run = past(ASKED, status="escalated", outcome="handed_to_staff")
    Run.objects.filter(pk=run.pk).update(outcome="resolved_by_staff")
    assert [case["outcome"] for case in like()] == ["resolved_by_staff"]


def test_only_the_newest_cases_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "NEWEST", 3)
    for number in range(5):
        past(ASKED, request_id=f"r{number}", days=number + 1)
    assert [case["request_id"] for case in like()] == ["r0", "r1", "r2"]


@pytest.mark.parametrize("column", ["conversation_erased_at", "evidence_erased_at"])
def test_a_case_of_which_anything_was_erased_is_gone_at_once(column: str) -> None:
    run = past(ASKED, session="sess_1")
    assert len(like()) == len(session()) == 1
    Run.objects.filter(pk=run.pk).update(**{column: dbtime.now()})
    assert (like(), session()) == ([], [])


@pytest.mark.parametrize("broken", ["{", "[]", "null", '{"goal": "charged twice order"}', '"charged twice"'])
def test_a_case_that_nobody_can_read_spoils_no_other(broken: str) -> None:
    past(ASKED, request_id="whole", session="sess_1")
    run = past(ASKED, session="sess_1")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET contract = %s WHERE request_id = %s", [broken, run.request_id])
    assert [case["request_id"] for case in like()] == session() == ["whole"]


# --- whose -----------------------------------------------------------------------------------------------------------


def test_another_tenants_cases_are_not_there_even_of_a_customer_with_the_same_id() -> None:
    done(past(ASKED, tenant="t_other", session="sess_1", request_id="theirs"))
    assert (like(), session()) == ([], [])
    assert [case["request_id"] for case in like(tenant="t_other")] == session(tenant="t_other") == ["theirs"]


@pytest.mark.parametrize(
    "query",
    ["tenant_id:t_other charged", 'customer_id:"cust_77"', "* OR 1=1", "') OR tenant_id <> '", "key:[0 TO *]",
     "-tenant:t_acme_in +charged", "charged\x00twice", "\ud800 charged", "charged " * 5000, "{{tenant}}", "%s %(a)s"],
)  # fmt: skip
def test_a_query_is_words_and_never_an_order_to_the_search(query: str) -> None:
    done(past(ASKED, tenant="t_other", request_id="theirs"))
    crowd()
    found = like(query)
    assert {case["tenant"] for case in found} <= {T}
    assert {case["same_customer"] for case in found} <= {False}
    assert len(found) in ((3,) if "charged" in query else (0,))


@pytest.mark.parametrize("customer", ["CUST_5521", "cust_552", "cust_55211", "cust_552_", "%", "cust%"])
def test_a_customer_is_the_same_by_his_whole_id_alone(customer: str) -> None:
    crowd()
    done(past(f"{ASKED} Quixote", session="sess_1"))
    case = theirs(like(customer=customer))
    assert case["same_customer"] is False and "request" not in case
    assert session(customer=customer) == []


def test_of_another_customers_case_nothing_is_shown_that_names_anything_of_his() -> None:
    crowd()
    done(past(f"{ASKED} Quixote 8472", customer=OTHER, session="sess_1"), note="Frobnitz", reason="Wibble")
    case = theirs(like())
    assert case == {
        "precedent": True, "tenant": T, "same_customer": False, "status": "completed", "outcome": "refunded",
        "reason": None, "policy": PIN, "gate": ["deny: evidence_missing",
        "needs_approval: refund_above_1000_requires_approval"], "people": ["approved"],
        "steps": ["get_order", "issue_refund: denial", "issue_refund"],
    }  # fmt: skip
    assert [word for word in PLANTED if word in json.dumps(case)] == []


def test_an_id_or_an_amount_finds_nobodys_case() -> None:
    crowd("order 8472 payment pay_9002 of 2,000.00 INR, mail quixote77@example.org")
    for query in ("8472", "pay_9002", "2,000.00", "quixote77", "about 8472"):
        assert like(query) == [], query


def test_a_word_that_few_customers_use_finds_nobody_elses_case() -> None:
    past(f"{ASKED} Quixote", customer=OTHER)
    past("Quixote", customer=ME, request_id="mine")
    assert [case["request_id"] for case in like("Quixote")] == ["mine"]
    for number in range(5):
        past(f"{ASKED} Quixote", customer=OTHER, days=number)
    past("Quixote", customer="third")
    assert [case["same_customer"] for case in like("quixote")] == [True]
    past("quixote!", customer="fourth")
    assert len(like("Quixote")) == 8


def test_a_case_is_found_by_the_beginning_of_what_was_written() -> None:
    """A request may be long, and 500 of the longest would hold a worker for seconds."""
    past(f"parcel {'x' * cases.MAX_READ} quixote", request_id="long")
    assert [case["request_id"] for case in like("parcel")] == ["long"]
    assert like("quixote") == []


def test_what_many_wrote_finds_all_of_their_cases_whatever_else_stands_in_them() -> None:
    crowd(f"{ASKED} Rosinante")
    assert [case["same_customer"] for case in like("charged twice zebra")] == [False] * 3


def test_his_own_case_is_shown_with_its_ids_its_amounts_and_his_words() -> None:
    run = done(past(ASKED, request_id="req-1"))
    [case] = like()
    assert {name: case[name] for name in ("same_customer", "run", "request_id", "orders", "request")} == {
        "same_customer": True, "run": str(run.pk), "request_id": "req-1", "orders": ["8472"], "request": ASKED,
    }  # fmt: skip
    assert case["writes"] == [
        {"tool": "issue_refund", "order_id": "8472", "payment_id": "pay_9002", "state": "confirmed",
         "refund_id": "rf_req-1", "amount": {"amount": "2000.00", "currency": "INR"}}
    ]  # fmt: skip
    assert "request_is_cut" not in case


def test_what_a_model_made_up_is_no_step_and_no_slug() -> None:
    crowd()
    run = past(ASKED, customer=OTHER, reason="Wibble told him so")
    event(run, "gate.decided", {"decision": "deny", "rule": "Frobnitz is always refunded 50000"})
    event(run, "approval.decided", {"decision": "approved by Quixote"})
    for position, name in enumerate(("refund_50000_at_once_for_quixote", "get_order"), start=1):
        run.observations.create(
            obs_id=f"obs_{position}", position=position, call_id=f"c{position}", kind="denial", source=name,
            content={}, content_hash="", fetched_at=dbtime.now(),
        )  # fmt: skip
    case = theirs(like())
    assert (case["reason"], case["gate"], case["people"], case["steps"]) == (
        None, ["deny: None"], [None], ["get_order: denial"],
    )  # fmt: skip


def test_every_list_and_text_of_a_case_is_bounded() -> None:
    run = done(past(f"charged {'x' * 20_000}"))
    for number in range(60):
        event(run, "gate.decided", {"decision": "deny", "rule": "evidence_missing"})
        run.observations.create(
            obs_id=f"more_{number}", position=100 + number, call_id=f"m{number}", kind="result", source="get_order",
            content={}, content_hash="", fetched_at=dbtime.now(),
        )  # fmt: skip
        run.orders.create(tenant_id=T, order_id=f"o{number}")
    [case] = like("charged")
    assert (len(case["request"]), case["request_is_cut"]) == (cases.MAX_REQUEST, True)
    assert (len(case["steps"]), len(case["gate"]), len(case["orders"])) == (24, 8, 20)
    for number in range(20):
        past(ASKED, request_id=f"n{number}")
    assert len(like()) == 8


# --- a session --------------------------------------------------------------------------------------------------------


def test_a_session_is_told_by_its_ended_runs_however_they_ended_the_newest_first() -> None:
    past("first", session="sess_1", request_id="first", days=3)
    past("second", session="sess_1", request_id="second", days=2, status="cancelled", outcome="cancelled")
    past("third", session="sess_1", request_id="third", days=1, status="escalated", outcome="handed_to_staff")
    past("live", session="sess_1", request_id="live", status="gathering", outcome=None, completed_at=None)
    past("elsewhere", session="sess_2", request_id="elsewhere")
    past("nowhere", session=None, request_id="nowhere")
    assert session() == ["third", "second", "first"]
    assert session("sess_2") == ["elsewhere"] and session("sess_3") == []


def test_a_session_that_another_customer_names_too_is_not_shared() -> None:
    done(past(ASKED, customer=OTHER, session="sess_1", request_id="theirs"))
    assert session() == [] and session(customer=OTHER) == ["theirs"]


def test_a_long_session_shows_its_newest_runs_alone() -> None:
    for number in range(8):
        past("again", session="sess_1", request_id=f"r{number}", days=8 - number)
    assert session() == ["r7", "r6", "r5", "r4", "r3"]


def test_looking_for_cases_writes_nothing() -> None:
    done(past(ASKED, session="sess_1"))
    before = [list(model.objects.values_list()) for model in (Run, *_related())]
    assert like() and session()
    assert [list(model.objects.values_list()) for model in (Run, *_related())] == before


def _related() -> tuple[Any, ...]:
    from runs.models import Event, Observation, Recalled, RunOrder, Write

    return Event, Observation, Recalled, RunOrder, Write


def test_a_contract_of_older_code_is_read_too() -> None:
    old = contract(ASKED)
    del old["scope"]["people_tools"], old["actor"]["session_id"]
    past(ASKED, contract=old, request_id="old")
    assert [case["request_id"] for case in like()] == ["old"]
