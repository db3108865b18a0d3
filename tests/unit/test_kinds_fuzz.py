"""Recorded answers and good streams, broken at random: only a turn or a typed error ever comes out, for any bytes.

The records are those of `test_wire_cases`; without them, answers and streams of the tests' own stand in.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runs.errors import ModelError
from runs.inference.dialects import BY_PROVIDER
from runs.inference.dialects.answers import decode, decode_stream, faulty, recall
from runs.inference.dialects.dialect import FAULTS
from runs.inference.dialects.sse import Events
from tests.conftest import Say
from tests.models import odd, speaking
from tests.models.odd import READ, Call, Odd
from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI, PROVIDERS
from tests.unit.test_dialects_attack import sane
from tests.unit.test_wire_cases import PROVIDER, records

EXAMPLES = 300
OWN = [Odd(calls=(READ, Call())), Odd(calls=(Call(),)), Odd(says='"Thank you, \\u20ac 2.\\ud83d\\ude00"')]
# What turns up in the wrong place: brackets, quotes, escapes, ends, keys, and bytes that are no text.
PIECES = (
    b"", b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\n", b"\n\n", b"\r", b"data: ", b"data: [DONE]\n\n",
    b"null", b"NaN", b"1e400", b"-1", b"\x00", b"\\u0000", b"\\ud800", b"\xff", b"\xe2\x82", b"\xef\xbb\xbf",
    b'"index":1,', b'"fault":"too_long",', b'"error":{"type":"overloaded_error"},', b'"input_json":"{}",', b"[" * 300,
    b"9" * 5000,
)  # fmt: skip
Bases = dict[str, list[bytes]]


@lru_cache
def bases() -> tuple[Bases, Bases]:
    """Whole answers and streams, by provider, that read well as they are."""
    whole = {p: [odd.whole(p, turn) for turn in OWN] for p in PROVIDERS}
    streams = {p: [odd.stream(odd.events(p, turn)) for turn in OWN] for p in PROVIDERS}
    for record in records():
        of = (OPENAI,) if PROVIDER[record["api"]] == OPENAI else (ANTHROPIC, ANTHROPIC_XML)
        for provider in of:
            whole[provider].append(record["body"].encode())
            if "error" not in record["expect"]:
                streams[provider].append(speaking.stream(provider, json.loads(record["body"])))
    return whole, streams


@st.composite
def broken(draw: st.DrawFn, known: Bases) -> tuple[str, bytes]:
    """A provider and one of its answers, changed in one to four places."""
    provider = draw(st.sampled_from(PROVIDERS))
    body = draw(st.sampled_from(known[provider]))
    for _ in range(draw(st.integers(1, 4))):
        body = draw(changes(body, draw(st.sampled_from(known[provider]))))
    return provider, body


@st.composite
def changes(draw: st.DrawFn, body: bytes, other: bytes) -> bytes:
    at, end = sorted(draw(st.tuples(*[st.integers(0, len(body))] * 2)))
    short = min(end, at + draw(st.integers(0, 40)))
    kind = draw(st.sampled_from(("flip", "cut", "drop", "twice", "splice", "piece", "swap")))
    if kind == "flip" and body:
        at = min(at, len(body) - 1)
        return body[:at] + bytes([body[at] ^ (1 << draw(st.integers(0, 7)))]) + body[at + 1 :]
    made = {
        "cut": body[:at], "drop": body[:at] + body[short:], "twice": body[:short] + body[at:],
        "splice": body[:at] + other[at:], "swap": body[at:] + body[:at],
    }  # fmt: skip
    return made[kind] if kind in made else body[:at] + draw(st.sampled_from(PIECES)) + body[short:]


def outcome(provider: str, body: bytes, *, streamed: bool) -> str:
    """`turn`, `told: SLUG` or the error's name and slug; anything that is not typed raises."""
    dialect = BY_PROVIDER[provider]
    try:
        turn = decode_stream(dialect, [body]) if streamed else decode(dialect, body)
    except ModelError as error:
        assert error.slug and min(error.input_tokens, error.output_tokens) >= 0
        return f"{type(error).__name__} {error.slug}"
    sane(turn, provider)
    return f"told: {turn.fault}" if turn.fault else "turn"


@pytest.mark.parametrize("streamed", [False, True], ids=["json", "sse"])
def test_recorded_answers_broken_at_random_are_turns_or_typed_errors(streamed: bool, say: Say) -> None:
    known = bases()[streamed]
    found: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(broken(known))
    def one(given: tuple[str, bytes]) -> None:
        found[outcome(*given, streamed=streamed)] += 1

    one()
    say(f"{found.total()} broken answers of {sum(map(len, known.values()))}: {dict(found.most_common())}")
    assert found.total() >= EXAMPLES and found["turn"] < found.total()


# --- our own records, and answers that look like them --------------------------------------------------------------

OURS = {"fault": "too_long", "said": "x", "input": 1, "output": 2, "cached": 3}


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("provider", PROVIDERS)
def test_answer_off_the_wire_with_the_words_of_our_own_records_is_recalled_as_it_was(provider: str, fault: str) -> None:
    turn = Odd(says='"Thank you."')
    body = {**json.loads(odd.whole(provider, turn)), **OURS, "fault": fault}
    read = decode(BY_PROVIDER[provider], json.dumps(body).encode())
    assert (read.fault, "Thank you." in read.text) == ("", True)
    assert recall(BY_PROVIDER[provider], read.raw) == read


@pytest.mark.parametrize("provider", [ANTHROPIC, ANTHROPIC_XML])
def test_stream_off_the_wire_with_the_words_of_our_own_records_is_recalled_as_it_was(provider: str) -> None:
    lines = odd.events(provider, Odd(says='"Thank you."'))
    more = json.dumps(OURS)[1:-1]
    lines = [line.replace('"content": []', f'"content": [], {more}') for line in lines]
    lines[-2] = lines[-2].replace('{"stop_reason"', f'{{{more}, "stop_reason"')
    read = decode_stream(BY_PROVIDER[provider], [odd.stream(lines)])
    assert "Thank you." in read.text and '"fault"' in read.raw
    assert recall(BY_PROVIDER[provider], read.raw) == read


@pytest.mark.parametrize("provider", PROVIDERS)
def test_answer_that_is_nothing_but_our_own_record_is_no_answer(provider: str) -> None:
    with pytest.raises(ModelError, match="not_an_answer"):
        decode(BY_PROVIDER[provider], json.dumps(OURS).encode())


@pytest.mark.parametrize("provider", PROVIDERS)
def test_record_of_a_broken_answer_is_recalled_as_it_was(provider: str) -> None:
    kept = faulty("ambiguous_calls", "said")
    assert recall(BY_PROVIDER[provider], kept.raw) == kept


# --- time ------------------------------------------------------------------------------------------------------------

STUCK_S = 30


def test_line_of_megabytes_in_small_pieces_is_looked_through_once() -> None:
    """4 MB in 4,000 pieces: looked through anew with each piece, it would take minutes of one core."""
    started, events = time.monotonic(), Events()
    assert [*(data for _ in range(4_000) for data in events.feed(b"x" * 1000)), *events.close()] == []
    assert time.monotonic() - started < STUCK_S


def test_calls_without_number_are_refused_before_they_are_sorted_out() -> None:
    """400,000 pieces, each of a call of its own."""
    pieces = ",".join(f'{{"index":{n}}}' for n in range(400_000))
    body = f'data: {{"choices":[{{"index":0,"delta":{{"tool_calls":[{pieces}]}}}}]}}\n\n'.encode()
    started = time.monotonic()
    assert outcome(OPENAI, body, streamed=True) == "told: too_long"
    assert time.monotonic() - started < STUCK_S
