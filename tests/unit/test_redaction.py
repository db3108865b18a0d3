"""Data without secrets are handed back as they are; of all others the quick look misses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsite import env, redaction

pytestmark = pytest.mark.any_database
KNOWN = 'a "known" secrét/one'
FAR = "held-elsewhere-4711"
WORDS = st.text(max_size=8) | st.sampled_from(
    [KNOWN, json.dumps(KNOWN)[1:-1], json.dumps(json.dumps(KNOWN))[1:-1], FAR, f"token={FAR},", f"x\n{FAR}", f"{FAR}x"]
)
NAMES = WORDS | st.sampled_from(["password", "apiKey", "key", "input_tokens", "client-secret"])
TEXTS = st.lists(WORDS, max_size=3).map(" ".join)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(NAMES | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redaction, "_kept", frozenset({KNOWN}))
    monkeypatch.setattr(env.read(), "SECRETS_ELSEWHERE", [env.digest(FAR)])
    yield


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DATA, st.booleans())
def test_quick_look_finds_whatever_the_slow_one_finds(secrets: None, data: Any, by_name: bool) -> None:
    slow = redaction._without(data, redaction._known(), by_name=by_name, depth=0)
    quick = redaction.redact(data) if by_name else redaction.values_only(data)
    assert repr(quick) == repr(slow)


def test_data_without_a_secret_are_not_copied(secrets: None) -> None:
    data = {"order_id": "8472", "rows": [{"amount": {"amount": "2000.00", "currency": "INR"}, "note": "öl\n1.5"}]}
    assert redaction.redact(data) == data
    assert redaction.redact({"a": ["b", 1, 2.5, None]}) == {"a": ["b", 1, 2.5, None]}


def test_process_that_holds_all_its_secrets_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env.read(), "SECRETS_ELSEWHERE", [])
    data = {"order_id": "8472", "rows": [{"note": "öl\n1.5"}]}
    assert redaction.redact(data) is data and redaction.values_only(data) is data


@pytest.mark.parametrize("depth", [58, 59, 60, 61, 62, 70])
def test_too_deep_data_are_cut_at_the_same_place(secrets: None, depth: int) -> None:
    data: Any = 7
    for _ in range(depth):
        data = {"inner": data}
    slow = redaction._without(data, redaction._known(), by_name=True, depth=0)
    assert redaction.redact(data) == slow
    assert (redaction.REDACTED in repr(slow)) is (depth > redaction.MAX_DEPTH)
