"""The canonical form: the fast encoder's bytes and refusals are those of RFC 8785's own, whatever it is given."""

from __future__ import annotations

import enum
import math
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentsite.canonical import canonical

EDGE = 2**53
LETTERS = st.characters(codec=None) | st.sampled_from(
    '\x00\x1f\x7f\u2028\ud800\udfff\ue000\uffff\U00010000\U0010ffff"\\/'
)
TEXTS = st.text(LETTERS, max_size=6)


class Word(str):
    pass


class Status(enum.StrEnum):
    OPEN = "open"


class Number(enum.IntEnum):
    ONE = 1


class Plain(enum.Enum):
    ONE = 1


NO_JSON = st.sampled_from(
    [Word("w"), Status.OPEN, Number.ONE, Plain.ONE, uuid.UUID(int=7), datetime(2026, 1, 1, tzinfo=UTC), b"raw", {1}, 1j]
)
NUMBERS = (
    st.integers() | st.integers(EDGE - 3, EDGE + 3) | st.integers(-EDGE - 3, 3 - EDGE) | st.floats()
    | st.sampled_from([0.0, -0.0, 1.0, 1e-7, 1e21, 5e-324, math.nan, math.inf])
)  # fmt: skip
KEYS = TEXTS | st.sampled_from([Word("k"), Status.OPEN, 1, None, True, 1.5])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | NO_JSON,
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
PURE = st.recursive(
    st.none() | st.booleans() | st.integers(1 - EDGE, EDGE - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=20,
)


def slow(value: Any) -> bytes | str:
    """What the reference says: its bytes, or the name of its refusal as `canonical` tells it."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        return f"not canonical: {type(error).__name__}"


def said(value: Any) -> bytes | str:
    try:
        return canonical(value)
    except ValueError as error:
        return str(error)


@settings(max_examples=400, deadline=None)
@given(VALUES)
@example({"\U00010000": 1, "\ue000": 2})
@example({"\U00010000": 1, "\ud7ff": 2})
@example({"a": {"\uffff": [], "\U0010ffff": {}}})
@example([math.nan])
@example({"n": None, "f": math.nan})
@example([2.0, 1e-7, 0.1])
@example({1: "one"})
@example({"1": uuid.UUID(int=1)})
def test_canonical_says_what_the_reference_says(value: Any) -> None:
    assert said(value) == slow(value)


@settings(max_examples=400, deadline=None)
@given(PURE)
def test_canonical_of_plain_json_is_byte_for_byte_the_reference(value: Any) -> None:
    assert said(value) == slow(value)


@settings(max_examples=400, deadline=None)
@given(st.floats() | st.floats(-1e3, 1e3) | st.integers(-400, 400).map(lambda n: 7.1 * 10.0 ** (n // 20)))
@example(0.0001)
@example(1e15 - 0.5)
@example(123456789012345.6)
@example(-0.0)
def test_canonical_of_a_number_with_a_point_is_that_of_the_reference(value: float) -> None:
    assert said({"score": value}) == slow({"score": value})


@pytest.mark.parametrize("depth", [10, 254, 255, 256, 300])
def test_canonical_takes_any_depth_that_the_reference_takes(depth: int) -> None:
    value: Any = "leaf"
    for _ in range(depth):
        value = [{"k": value}]
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        ({"n": EDGE}, "not canonical: IntegerDomainError"),
        ([-EDGE], "not canonical: IntegerDomainError"),
        ({"k": math.inf}, "not canonical: FloatDomainError"),
        ({"k": None, "n": math.nan}, "not canonical: FloatDomainError"),
        (["\ud800"], "not canonical: CanonicalizationError"),
        ({1: 1}, "not canonical: CanonicalizationError"),
        ({"id": uuid.UUID(int=1)}, "not canonical: CanonicalizationError"),
        ({"e": Plain.ONE}, "not canonical: CanonicalizationError"),
    ],
)
def test_canonical_refuses_what_two_readers_could_take_differently(value: Any, refusal: str) -> None:
    with pytest.raises(ValueError, match=f"^{refusal}$"):
        canonical(value)
