"""The registry of tools: exact names, canonical arguments, and a start that is refused for a broken entry."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentsite import env
from agentsite.canonical import sha256
from agentsite.tenants import profiles
from tools import arguments, registry
from tools.contracts import Credential, Effect, Permission, ToolEntry
from tools.errors import InvalidArguments, UnknownTool

ARGS: dict[str, Any] = {
    "order_id": "8472",
    "payment_id": "pay_9002",
    "amount": {"amount": "2000.00", "currency": "INR"},
    "reason": "charged twice",
}
READS = ("get_order", "get_payments", "get_refund_status", "search_policy")


def refund(**changes: Any) -> dict[str, Any]:
    return registry.normalise("issue_refund", {**ARGS, **changes})


def fault(name: str, args: object) -> tuple[str, str]:
    with pytest.raises(InvalidArguments) as raised:
        registry.normalise(name, args)
    return raised.value.field, raised.value.expected


def inr(amount: object) -> dict[str, Any]:
    return {**ARGS, "amount": {"amount": amount, "currency": "INR"}}


def test_entry_takes_exact_names_only() -> None:
    assert registry.entry("issue_refund").effect is Effect.WRITE
    for name in ("issue_refunds", "Issue_refund", " issue_refund", "issue-refund", "", "__class__"):
        with pytest.raises(UnknownTool):
            registry.entry(name)


def test_normalise_leaves_canonical_arguments_alone() -> None:
    assert refund() == ARGS


@pytest.mark.parametrize(
    ("amount", "currency", "wire"),
    [("20", "INR", "20.00"), ("20.5", "INR", "20.50"), ("500", "JPY", "500"), ("1.25", "KWD", "1.250")],
)
def test_normalise_writes_the_currencys_own_decimals(amount: str, currency: str, wire: str) -> None:
    normal = refund(amount={"amount": amount, "currency": currency})
    assert normal["amount"] == {"amount": wire, "currency": currency}


@pytest.mark.parametrize(
    "amount",
    [
        "",
        "two thousand",
        "2,000.00",
        "2 000",
        "२०००",
        "２０００",
        "2e3",
        "+5",
        "-5",
        "05",
        ".5",
        "5.",
        "5\n",
        " 5",
        "NaN",
    ]
    + [True, 2000, 2000.0, None, "Infinity", "0x10", ["5"], {"minor": 5}],
)
def test_normalise_refuses_what_is_no_decimal_amount(amount: object) -> None:
    assert fault("issue_refund", inr(amount)) == ("amount.amount", "a decimal amount")


@pytest.mark.parametrize(
    ("amount", "currency", "field", "expected"),
    [
        ("0", "INR", "amount.amount", "a decimal amount above 0"),
        ("0.00", "INR", "amount.amount", "a decimal amount above 0"),
        ("1.005", "INR", "amount.amount", "a decimal amount with at most 2 decimals"),
        ("500.00", "JPY", "amount.amount", "a decimal amount with at most 0 decimals"),
        ("5.00", "inr", "amount.currency", "an ISO 4217 code"),
        ("5.00", "ABC", "amount.currency", "an ISO 4217 code"),
        ("5.00", "XXX", "amount.currency", "an ISO 4217 code"),
        ("5.00", 356, "amount.currency", "an ISO 4217 code"),
    ],
)
def test_normalise_names_the_field_of_bad_money(amount: str, currency: object, field: str, expected: str) -> None:
    args = {**ARGS, "amount": {"amount": amount, "currency": currency}}
    assert fault("issue_refund", args) == (field, expected)


@pytest.mark.parametrize(
    "value", ["", " 8472", "8472\n", "84 72", "８４７２", "a" * 129, 8472, None, ["8472"], "a\x00b"]
)
def test_normalise_refuses_what_is_no_id_and_strips_nothing(value: object) -> None:
    expected = "an id of letters, digits and _.:@/-"
    assert fault("get_order", {"order_id": value}) == ("order_id", expected)
    assert fault("issue_refund", {**ARGS, "payment_id": value}) == ("payment_id", expected)


def test_normalise_takes_every_letter_of_an_id_unchanged() -> None:
    order_id = "aZ09_.:@/-" + "x" * 118
    assert registry.normalise("get_order", {"order_id": order_id}) == {"order_id": order_id}


def test_normalise_names_missing_and_unknown_fields() -> None:
    without = {name: value for name, value in ARGS.items() if name != "payment_id"}
    assert fault("issue_refund", without) == ("payment_id", "present")
    assert fault("issue_refund", {**ARGS, "note": "x"}) == ("note", "no such field")
    assert fault("issue_refund", {**ARGS, "amount": {"amount": "5"}}) == ("amount.currency", "present")
    assert fault("issue_refund", {**ARGS, "amount": {"amount": "5", "currency": "INR", "minor": 1}}) == (
        "amount.minor",
        "no such field",
    )
    assert fault("issue_refund", {**ARGS, "amount": "2000.00"}) == ("amount", "an object")
    assert fault("get_order", ["8472"]) == ("args", "an object")
    assert fault("get_order", None) == ("args", "an object")


def test_normalise_names_a_hostile_field_in_text_that_can_be_stored() -> None:
    field, expected = fault("get_order", {"order_id": "8472", "\x00\u202e" + "x" * 500: 1})
    assert field.startswith("\\u0000\\u202exx") and len(field) == 200
    assert expected == "no such field"
    assert fault("get_order", {"order_id": "8472", "\ud800": 1}) == ("args", "names without lone surrogates")


def test_normalise_makes_text_visible_and_counts_it_afterwards() -> None:
    assert refund(reason="a\u202eb")["reason"] == "a\\u202eb"
    assert refund(reason="e\u0301")["reason"] == "\u00e9"
    assert refund(reason="x" * 200)["reason"] == "x" * 200
    for reason in ("", "   ", "x" * 201, "\u202e" * 34, 5, None):
        assert fault("issue_refund", {**ARGS, "reason": reason}) == ("reason", "text of 1 to 200 characters")
    assert registry.normalise("search_policy", {"query": "q" * 500}) == {"query": "q" * 500}
    assert fault("search_policy", {"query": "q" * 501}) == ("query", "text of 1 to 500 characters")


def test_normalise_joins_an_accent_that_follows_a_written_out_character() -> None:
    once = refund(reason="\u202e\u0301")
    assert once["reason"] == "\\u202\u00e9"
    assert registry.normalise("issue_refund", once) == once


@given(reason=st.text(min_size=1, max_size=30), amount=st.from_regex(r"\A[1-9][0-9]{0,5}(\.[0-9]{1,2})?\Z"))
def test_normalise_twice_is_normalise_once(reason: str, amount: str) -> None:
    try:
        once = refund(reason=reason, amount={"amount": amount, "currency": "INR"})
    except InvalidArguments:
        return
    assert registry.normalise("issue_refund", once) == once
    assert sha256(once).startswith("sha256:")


def test_schemas_are_plain_and_give_evidence_to_writes_alone() -> None:
    read, write = registry.schemas(["get_order", "issue_refund"])
    assert read["name"] == "get_order" and read["writes"] is False
    assert read["parameters"] == {
        "type": "object",
        "additionalProperties": False,
        "properties": {"order_id": {"type": "string", "pattern": "^[A-Za-z0-9_.:@/-]{1,128}$"}},
        "required": ["order_id"],
    }
    assert write["writes"] is True
    assert write["parameters"]["required"] == ["order_id", "payment_id", "amount", "reason", "evidence"]
    assert write["parameters"]["properties"]["evidence"]["items"] == {"type": "string"}
    assert write["parameters"]["properties"]["amount"]["required"] == ["amount", "currency"]
    assert "$ref" not in str(write) and "title" not in str(write)


def test_schemas_of_two_calls_share_nothing_that_can_be_changed() -> None:
    registry.schemas(["issue_refund"])[0]["parameters"]["properties"].clear()
    assert "order_id" in registry.schemas(["issue_refund"])[0]["parameters"]["properties"]


def test_tools_hash_follows_the_set_of_tools_and_not_their_order() -> None:
    one = registry.tools_hash(READS)
    assert one == registry.tools_hash(tuple(reversed(READS)))
    assert one != registry.tools_hash((*READS, "issue_refund"))
    with pytest.raises(UnknownTool):
        registry.tools_hash(("get_orders",))


def test_tools_hash_changes_with_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = registry.tools_hash(READS)
    changed = {**registry.TOOLS, "get_order": replace(registry.entry("get_order"), version=2)}
    monkeypatch.setattr(registry, "TOOLS", changed)
    assert registry.tools_hash(READS) != before


def test_timeouts_are_the_sites_within_the_entrys_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALL_TIMEOUT_S", "3")
    monkeypatch.setenv("WRITE_TIMEOUT_S", "900")
    env.read.cache_clear()
    try:
        assert registry.timeout_s("get_order") == 3
        assert registry.timeout_s("issue_refund") == 120
    finally:
        monkeypatch.undo()
        env.read.cache_clear()


class Open(BaseModel):
    order_id: str


class WithEvidence(arguments.Arguments):
    evidence: str


READ = registry.TOOLS["get_order"]
WRITE = registry.TOOLS["issue_refund"]


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        (replace(READ, effect="raed"), "effect is misspelt"),  # type: ignore[arg-type]
        (replace(WRITE, effect="write"), "effect is misspelt"),  # type: ignore[arg-type]
        (replace(READ, permission="unrestrcted"), "permission is misspelt"),  # type: ignore[arg-type]
        (replace(READ, credential="comerce_read"), "credential is misspelt"),  # type: ignore[arg-type]
        (replace(READ, danger="harmless"), "danger is misspelt"),  # type: ignore[arg-type]
        (replace(WRITE, credential=Credential.COMMERCE_READ), "the write credential belongs to writes"),
        (replace(WRITE, credential=Credential.NONE), "the write credential belongs to writes"),
        (replace(READ, credential=Credential.COMMERCE_WRITE), "the write credential belongs to writes"),
        (replace(READ, timeout_s=0), "timeout_s is not within (0, 120]"),
        (replace(READ, timeout_s=121), "timeout_s is not within (0, 120]"),
        (replace(READ, timeout_s=float("nan")), "timeout_s is not within (0, 120]"),
        (replace(READ, timeout_s=True), "timeout_s is not within (0, 120]"),
        (replace(READ, name="get_orders"), "name differs from its key"),
        (replace(READ, summary=""), "no summary"),
        (replace(READ, version=0), "version is no counting number"),
        (replace(READ, arguments=None), "arguments is no model"),  # type: ignore[arg-type]
        (replace(READ, arguments=Open), "arguments takes unknown fields"),
        (replace(WRITE, arguments=WithEvidence), "arguments has a field named evidence"),
    ],
)
def test_check_all_refuses_a_broken_entry(tool: ToolEntry, named: str) -> None:
    key = "issue_refund" if tool.name == "issue_refund" else "get_order"
    with pytest.raises(registry.BrokenRegistry) as raised:
        registry.check_all({key: tool})
    assert any(named in fault for fault in raised.value.faults), raised.value.faults


def test_check_all_names_every_fault_and_passes_what_ships() -> None:
    registry.check_all()
    bad = {"get_order": replace(READ, timeout_s=0), "issue_refund": replace(WRITE, version=0)}
    with pytest.raises(registry.BrokenRegistry) as raised:
        registry.check_all(bad)
    assert [fault.partition(":")[0] for fault in raised.value.faults] == ["get_order", "issue_refund"]
    registry.check_all({"get_order": replace(READ, permission=Permission.NEVER)})


def profile(read_tools: tuple[str, ...], write_tools: tuple[str, ...]) -> profiles.Profile:
    grant: dict[str, Any] = {"by_currency": {"INR": {"max_amount": "5000", "requires_approval_above": "1000"}}}
    return profiles.parse(
        {"read_tools": read_tools, "write_tools": {n: grant for n in write_tools}, "policy_pin": "POL-REF-004@v4"}
    )


def test_check_profile_names_unknown_tools_and_tools_of_the_other_class() -> None:
    assert registry.check_profile(profile(READS, ("issue_refund",))) == []
    assert registry.check_profile(profile(("get_order", "issue_refund", "get_ordr"), ("get_payments", "refund"))) == [
        "read_tools: issue_refund is no read tool",
        "read_tools: get_ordr is no read tool",
        "write_tools: get_payments is no write tool",
        "write_tools: refund is no write tool",
    ]


# People's tools, retries, coercion


class Loose(arguments.Arguments):
    limit: int
    order_id: arguments.Id


class Paid(arguments.Arguments):
    count: int
    amount: arguments.Amount


class Wordy(arguments.Arguments):
    query: str


PLAN = registry.TOOLS["plan"]
SEARCH = registry.TOOLS["search_policy"]


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        (replace(READ, retries=3), "retries is not within 0 to 2"),
        (replace(READ, retries=True), "retries is not within 0 to 2"),
        (replace(WRITE, retries=1), "only a read is repeated"),
        (replace(PLAN, retries=1), "only a read is repeated"),
        (replace(WRITE, cancel=lambda call_id, args: True), "cancel is no hook of a read"),
        (replace(READ, cancel="yes"), "cancel is no hook of a read"),  # type: ignore[arg-type]
        (replace(SEARCH, coerces="yes"), "coerces is misspelt"),  # type: ignore[arg-type]
        (replace(WRITE, coerces=True), "a write coerces nothing"),
        (replace(WRITE, coerces=True), "what takes an id or money coerces nothing"),
        (replace(READ, coerces=True), "what takes an id or money coerces nothing"),
        (replace(SEARCH, arguments=Loose), "what takes an id or money coerces nothing"),
        (replace(SEARCH, arguments=Paid), "what takes an id or money coerces nothing"),
        (replace(SEARCH, arguments=Wordy), "coerces, and takes no whole number"),
        (replace(PLAN, credential=Credential.COMMERCE_READ), "a people tool holds no credential"),
    ],
)
def test_check_all_refuses_what_may_not_run_so(tool: ToolEntry, named: str) -> None:
    with pytest.raises(registry.BrokenRegistry) as raised:
        registry.check_all({tool.name: tool})
    assert any(named in fault for fault in raised.value.faults), raised.value.faults


@pytest.mark.parametrize(("given", "taken"), [("3", 3), (3, 3), ("8", 8), ("1", 1)])
def test_read_that_coerces_takes_a_whole_number_written_as_text(given: object, taken: int) -> None:
    """M60."""
    assert registry.normalise("search_policy", {"query": "q", "limit": given}) == {"query": "q", "limit": taken}


@pytest.mark.parametrize(
    "given", ["3.0", "03", " 3", "3 ", "+3", "-0", "1e1", "३", "３", "three", "", 3.0, True, None, ["3"], "9" * 30]
)
def test_number_that_is_ambiguous_is_refused_with_its_field(given: object) -> None:
    assert fault("search_policy", {"query": "q", "limit": given}) == ("limit", "a whole number")


def test_number_beyond_its_bounds_is_refused_in_either_form() -> None:
    for limit in (0, 9, "0", "9", "-1"):
        field, expected = fault("search_policy", {"query": "q", "limit": limit})
        assert (field, "than or equal to" in expected) == ("limit", True)


def test_what_is_left_out_stays_out() -> None:
    assert registry.normalise("search_policy", {"query": "q"}) == {"query": "q"}


def test_nothing_but_a_declared_whole_number_is_coerced() -> None:
    assert fault("search_policy", {"query": 3})[0] == "query"
    assert fault("issue_refund", inr(2000)) == ("amount.amount", "a decimal amount")
    assert fault("get_order", {"order_id": 8472})[0] == "order_id"


@pytest.mark.parametrize(
    ("tool", "args", "field"),
    [
        ("message", {"text": " \n"}, "text"),
        ("message", {"text": "x" * 601}, "text"),
        ("message", {"text": "x", "to": "somebody"}, "to"),
        ("ask", {"question": 3}, "question"),
        ("ask", {}, "question"),
        ("plan", {"steps": []}, "steps"),
        ("plan", {"steps": ["x"] * 11}, "steps"),
        ("plan", {"steps": ["x", "y" * 201]}, "steps.1"),
        ("plan", {"steps": "read"}, "steps"),
        ("escalate", {"reason": ""}, "reason"),
    ],
)
def test_words_for_people_are_bounded_and_closed(tool: str, args: dict[str, Any], field: str) -> None:
    assert fault(tool, args)[0] == field


def test_words_for_people_keep_their_lines_and_hide_nothing() -> None:
    assert registry.normalise("ask", {"question": "Which\norder\u202e?"}) == {"question": "Which\norder\\u202e?"}
    assert registry.normalise("plan", {"steps": ["a\nb"]}) == {"steps": ["a\\u000ab"]}
    for tool, args in (("ask", {"question": "a\u200bé\r\nb"}), ("plan", {"steps": ["a\x07e\u0301"]})):
        once = registry.normalise(tool, args)
        assert registry.normalise(tool, once) == once


def test_people_tools_are_a_class_of_their_own() -> None:
    people = [name for name, tool in registry.TOOLS.items() if tool.effect is Effect.PEOPLE]
    assert people == ["message", "ask", "plan", "escalate"]
    assert {registry.entry(name).credential for name in people} == {Credential.NONE}
    assert [schema["writes"] for schema in registry.schemas(people)] == [False] * 4
    assert registry.ROLES["refunds"] == tuple(registry.TOOLS)


def test_check_profile_knows_the_third_class_and_what_is_blocked() -> None:
    wrong = {"people_tools": ["ask", "get_order", "shout"], "blocked_tools": ["plan", "refunds"]}
    document = {"read_tools": ["get_order", "ask"], "policy_pin": "POL-REF-004@v4", **wrong}
    assert registry.check_profile(profiles.parse(document)) == [
        "read_tools: ask is no read tool",
        "people_tools: get_order is no people tool",
        "people_tools: shout is no people tool",
        "blocked_tools: refunds is no tool",
    ]
    assert registry.check_blocked(["issue_refund", "issue_refunds"]) == ["issue_refunds is no tool"]
