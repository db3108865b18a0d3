"""Bodies and query strings from outside: every fault is named by a pointer, and nothing sent is repeated."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.http import QueryDict

from agentsite.money import Money
from agentsite.refusals import Refusal
from agentsite.tenants.profiles import Limits
from runs import budgets
from runs.admission import granted_limits
from runs.api import bodies, pages
from runs.contracts import AskedLimits, RunRequest

GOOD: dict[str, Any] = {"request_id": "req-1", "goal": "help", "actor": {"customer_id": "c1"}}


def refused(data: Any) -> dict[str, str]:
    """Pointer to code, of a refused run request."""
    with pytest.raises(Refusal) as caught:
        bodies.parse(RunRequest, data)
    assert (caught.value.status, caught.value.slug) == (400, "invalid-request")
    return {error["pointer"]: error["code"] for error in caught.value.errors or []}


def test_request_with_the_required_fields_alone_is_taken() -> None:
    wanted = bodies.parse(RunRequest, GOOD)
    assert (wanted.request_id, wanted.agent, wanted.order_ids) == ("req-1", "refunds", None)


def test_request_without_required_fields_names_each() -> None:
    assert refused({}) == {"/request_id": "missing", "/goal": "missing", "/actor": "missing"}
    assert refused({**GOOD, "actor": {}}) == {"/actor/customer_id": "missing"}


def test_request_that_brings_its_own_authority_is_refused() -> None:
    forged = {
        **GOOD, "status": "approved", "approval": {"status": "approved"},
        "scope": {"write_tools": {"issue_refund": {"max_amount_inr": 999999}}},
        "limits": {"max_model_calls": 5, "max_amount": "9"},
    }  # fmt: skip
    assert refused(forged) == {
        "/status": "extra_forbidden", "/approval": "extra_forbidden", "/scope": "extra_forbidden",
        "/limits/max_amount": "extra_forbidden",
    }  # fmt: skip


@pytest.mark.parametrize("request_id", ["", "a:b", "x" * 129, "a b", "a\n", "é", 7, None])
def test_request_id_outside_its_alphabet_is_refused(request_id: object) -> None:
    assert list(refused({**GOOD, "request_id": request_id})) == ["/request_id"]


def test_goal_of_16_kb_is_taken_and_one_byte_more_is_not() -> None:
    assert bodies.parse(RunRequest, {**GOOD, "goal": "x" * 16384}).goal == "x" * 16384
    assert refused({**GOOD, "goal": "x" * 16385}) == {"/goal": "value_error"}
    assert refused({**GOOD, "goal": "é" * 8193}) == {"/goal": "value_error"}


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "\udfff"])
def test_text_no_database_takes_is_refused_with_its_pointer(text: str) -> None:
    assert refused({**GOOD, "goal": text}) == {"/goal": "forbidden_text"}
    assert refused({**GOOD, "actor": {"customer_id": "c", "channel": text}}) == {"/actor/channel": "forbidden_text"}
    assert refused({**GOOD, "order_ids": ["8472", text]}) == {"/order_ids/1": "forbidden_text"}


def test_pointer_of_a_strange_key_is_escaped_and_bounded() -> None:
    assert list(refused({**GOOD, "a/b~c": 1})) == ["/a~1b~0c"]
    assert list(refused({**GOOD, "a\x00b": 1})) == ["/a\\u0000b"]
    assert len(next(iter(refused({**GOOD, "k" * 5000: 1})))) == 300


def test_faults_are_bounded_and_repeat_no_value() -> None:
    with pytest.raises(Refusal) as caught:
        bodies.parse(RunRequest, {**GOOD, "order_ids": ["sec ret"] * 90})
    assert len(caught.value.errors or []) <= 50
    assert "sec ret" not in repr(vars(caught.value))


@pytest.mark.parametrize("data", [[], "text", 7, None])
def test_body_that_is_no_object_is_refused_at_its_root(data: object) -> None:
    assert list(refused(data)) == [""]


@pytest.mark.parametrize("header", ["req-1", '"req-1"', " req-1 ", None])
def test_idempotency_key_equal_to_the_request_id_is_taken(header: str | None) -> None:
    bodies.check_idempotency_key(header, "req-1")


@pytest.mark.parametrize("header", ["req-2", "", '"req-1', "'req-1'", "REQ-1"])
def test_idempotency_key_that_differs_is_refused(header: str) -> None:
    with pytest.raises(Refusal) as caught:
        bodies.check_idempotency_key(header, "req-1")
    assert caught.value.status == 400
    assert caught.value.errors and caught.value.errors[0]["pointer"] == "/request_id"


def test_query_parameter_not_offered_or_repeated_is_refused() -> None:
    with pytest.raises(Refusal) as caught:
        bodies.only(QueryDict("statu=completed&status=failed&status=completed"), frozenset({"status"}))
    assert [(e["pointer"], e["code"]) for e in caught.value.errors or []] == [
        ("/statu", "unknown_parameter"), ("/status", "repeated_parameter"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["-1", "0", "101", "1.5", "x", "", "١", "99999999999"])
def test_integer_out_of_bounds_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        bodies.integer(QueryDict(f"limit={text}"), "limit", default=20, least=1, most=100)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("at=2026-11-29T12:00:00Z", datetime(2026, 11, 29, 12, tzinfo=UTC)),
        ("at=2026-11-29T12:00:00%2B05:30", datetime(2026, 11, 29, 6, 30, tzinfo=UTC)),
        ("at=2026-11-29T12:00:00+05:30", datetime(2026, 11, 29, 6, 30, tzinfo=UTC)),
        ("", None),
    ],
)
def test_moment_is_read_with_its_offset(query: str, expected: datetime | None) -> None:
    assert bodies.moment(QueryDict(query), "at") == expected


@pytest.mark.parametrize("text", ["2026-11-29T12:00:00", "yesterday", "", "0001-01-01T00:00:00%2B14:00", "%00"])
def test_moment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        bodies.moment(QueryDict(f"at={text}"), "at")


@pytest.mark.parametrize("text", ["", "!!", "bnxub3xu", "b3wyMDI2fA", "é", "x" * 400])
def test_cursor_we_did_not_make_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        pages.read_cursor(text)


def test_limits_can_only_be_narrowed() -> None:
    asked = AskedLimits.model_validate({"max_model_calls": 3, "max_cost": {"amount": "0.50", "currency": "USD"}})
    narrowed = granted_limits(Limits(), asked)
    assert (narrowed.max_model_calls, narrowed.max_cost) == (3, Money(minor=50, currency="USD"))
    assert (narrowed.deadline_ms, narrowed.max_write_attempts) == (30_000, 2)
    assert granted_limits(Limits(), None) == Limits()
    assert granted_limits(Limits(), AskedLimits(max_model_calls=12)).max_model_calls == 12


@pytest.mark.parametrize(
    ("asked", "pointers"),
    [
        ({"max_model_calls": 13}, ["/limits/max_model_calls"]),
        ({"deadline_ms": 30_001, "max_write_attempts": 3}, ["/limits/deadline_ms", "/limits/max_write_attempts"]),
        ({"max_cost": {"amount": "1.01", "currency": "USD"}}, ["/limits/max_cost"]),
        ({"max_cost": {"amount": "0.01", "currency": "EUR"}}, ["/limits/max_cost"]),
    ],
)
def test_limit_above_the_grant_is_refused(asked: dict[str, Any], pointers: list[str]) -> None:
    with pytest.raises(Refusal) as caught:
        granted_limits(Limits(), AskedLimits.model_validate(asked))
    assert (caught.value.status, caught.value.slug) == (403, "scope-exceeds-grant")
    assert sorted(e["pointer"] for e in caught.value.errors or []) == sorted(pointers)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0.0000"),
        (12_300, "0.0123"),
        (12_345, "0.012345"),
        (1_000_000, "1.0000"),
        (2_500_010, "2.50001"),
        (1, "0.000001"),
    ],
)
def test_cost_is_shown_with_four_to_six_decimals(micros: int, text: str) -> None:
    contract = {"limits": {"max_cost": {"amount": "1.00", "currency": "EUR"}}}
    assert budgets.cost(contract, micros) == {"amount": text, "currency": "EUR"}
