"""One exchange with a model provider over real sockets: one request whatever comes, typed errors, cut on request."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agentsite import env
from runs import backends
from runs.contracts import LLMTurnResult
from runs.errors import ContextTooLong, ModelError, ModelInterrupted, ModelRefused, ModelUnavailable
from runs.inference import gateway
from runs.inference.dialects import recall
from runs.inference.reading import read
from runs.prompt import NATIVE_OUTPUT, TEXT_OUTPUT, build_prompt
from tests.loopback import closed_port
from tests.models.server import KEY, Fault, ModelServer, limited, prompt_in, scripted
from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI, PROVIDERS, Said
from tests.unit.states_8472 import TOOLS, gathered, state
from tools.adapters import http

pytestmark = pytest.mark.any_database

Ask = Callable[..., LLMTurnResult]
CACHED = ("cache_control", {"type": "ephemeral"})
HELLO = Said(text="Hello.", thinking="Hm.", usage=(100, 20, 60))


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Asks a server once, through the real client: `ask(server, timeout_s=…, should_stop=…, VARIABLE=…)`."""

    def once(server: ModelServer, *, timeout_s: float = 20, **more: Any) -> LLMTurnResult:
        for name, value in {**server.variables(), **{k: more.pop(k) for k in list(more) if k.isupper()}}.items():
            monkeypatch.setenv(name, value)
        env.read.cache_clear()
        prompt = build_prompt(state(gathered()), TOOLS)
        route = f"{server.provider}:m-2026"
        return gateway.complete(route, prompt, timeout_s=timeout_s, post=backends.post_to_model, **more)

    yield once
    env.read.cache_clear()


def asked(server: ModelServer, ask: Ask, **more: Any) -> ModelError:
    """The error of one call, which was one request."""
    with pytest.raises(ModelError) as caught:
        ask(server, **more)
    assert (len(server.requests), server.wrong) == (1, [])
    return caught.value


@pytest.mark.parametrize("streamed", ["0", "1"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_turn_is_the_same_in_every_dialect_streamed_or_not(provider: str, streamed: str, ask: Ask) -> None:
    with ModelServer(provider, scripted(provider, [HELLO])) as server:
        turn = ask(server, MODEL_STREAM=streamed)
    assert (turn.text, turn.thinking, turn.model, turn.finish_reason) == ("Hello.", "Hm.", "m-2026", "stop")
    assert (turn.input_tokens, turn.output_tokens, turn.cached_tokens) == (100, 20, 60)
    assert (turn.native, turn.calls, turn.fault) == (provider != ANTHROPIC_XML, (), "")
    assert recall(f"{provider}:m-2026", turn.raw) == turn


@pytest.mark.parametrize("provider", PROVIDERS)
def test_request_carries_the_prompt_whole_and_each_dialect_its_own_output_contract(provider: str, ask: Ask) -> None:
    with ModelServer(provider, scripted(provider, [HELLO])) as server:
        ask(server, MODEL_MAX_OUTPUT_TOKENS="777")
    [request] = server.requests
    prompt, shown = build_prompt(state(gathered()), TOOLS), prompt_in(request.body)
    spoken = prompt.system if provider == ANTHROPIC_XML else prompt.system.replace(TEXT_OUTPUT, NATIVE_OUTPUT)
    assert (shown.system, read(shown)) == (spoken, read(prompt))
    assert TEXT_OUTPUT in prompt.system and (TEXT_OUTPUT in spoken) is (provider == ANTHROPIC_XML)
    assert request.body["max_completion_tokens" if provider == OPENAI else "max_tokens"] == 777
    assert request.body["model"] == "m-2026"
    offered = [t.get("function", t)["name"] for t in request.body.get("tools", [])]
    assert offered == ([] if provider == ANTHROPIC_XML else [t.name for t in TOOLS])


@pytest.mark.parametrize("provider", [ANTHROPIC, ANTHROPIC_XML])
def test_all_but_the_snapshot_is_marked_for_the_cache(provider: str, ask: Ask) -> None:
    with ModelServer(provider, scripted(provider, [HELLO])) as server:
        ask(server)
    body = server.requests[0].body
    *past, last, moving = [b for message in body["messages"] for b in message["content"]]
    marked = [
        block for block in [*body.get("tools", []), *body["system"], *past, last, moving] if CACHED in block.items()
    ]
    assert marked == [*body.get("tools", [])[-1:], *body["system"], last]
    assert "[5] TASK STATE SNAPSHOT" not in json.dumps([body["system"], past, last])
    assert moving["text"].startswith("\n[5] TASK STATE SNAPSHOT")


REFUSALS = {
    400: (ModelRefused, "model_request_refused"), 401: (ModelRefused, "model_key_refused"),
    403: (ModelRefused, "model_key_refused"), 404: (ModelRefused, "model_not_found"),
    302: (ModelRefused, "model_redirected"), 418: (ModelRefused, "model_request_refused"),
    408: (ModelUnavailable, "model_unavailable"), 500: (ModelUnavailable, "model_unavailable"),
    503: (ModelUnavailable, "model_unavailable"), 529: (ModelUnavailable, "model_unavailable"),
}  # fmt: skip


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("provider", [OPENAI, ANTHROPIC])
def test_status_becomes_its_typed_error_after_one_request(provider: str, status: int, ask: Ask) -> None:
    with ModelServer(provider) as elsewhere, ModelServer(provider) as server:
        server.always = Fault(status=status, body={"error": {"message": KEY}}, headers={"Location": elsewhere.base_url})
        error = asked(server, ask)
        assert elsewhere.requests == []
    assert (type(error), error.slug, error.retry_after_s) == (*REFUSALS[status], None)
    assert KEY not in repr(error)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "context_length_exceeded", "message": "too big"}},
        {"error": {"message": "This model's maximum context length is 8192 tokens."}},
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8 maximum"}},
        {"error": {"type": "exceed_context_size_error", "message": "exceeds the available context size"}},
    ],
)
def test_prompt_that_does_not_fit_is_an_error_of_its_own(body: dict[str, Any], ask: Ask) -> None:
    with ModelServer(OPENAI, always=Fault(status=400, body=body)) as server:
        error = asked(server, ask)
    assert (type(error), error.slug) == (ContextTooLong, "context_too_long")


@pytest.mark.parametrize(("after", "low", "high"), [("7", 7, 7), ("0.5", 0.5, 0.5), ("99999", 3600, 3600)])
def test_retry_after_in_seconds_is_honoured(after: str, low: float, high: float, ask: Ask) -> None:
    with ModelServer(ANTHROPIC, always=limited(after)) as server:
        error = asked(server, ask)
    assert (type(error), error.slug) == (ModelUnavailable, "model_rate_limited")
    assert low <= (error.retry_after_s or 0) <= high


def test_retry_after_as_a_date_is_honoured_and_nonsense_is_none(ask: Ask) -> None:
    for after, low, high in ((datetime.now(UTC) + timedelta(seconds=600), 500, 600), ("soon", 0, 0)):
        text = after if isinstance(after, str) else format_datetime(after, usegmt=True)
        with ModelServer(OPENAI, always=limited(text)) as server:
            assert low <= (asked(server, ask).retry_after_s or 0) <= high


def test_nobody_listening_is_unreachable(ask: Ask) -> None:
    with ModelServer(OPENAI) as server:
        with pytest.raises(ModelUnavailable, match="model_unreachable"):
            ask(server, OPENAI_BASE_URL=closed_port())
        assert server.requests == []


def test_answer_without_an_end_is_cut_at_its_limit(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.inference.transport.MAX_ANSWER_BYTES", 10_000)
    with ModelServer(OPENAI, always=Fault(raw=b"x" * 20_000)) as server:
        assert asked(server, ask).slug == "model_answer_too_large"


def test_silence_within_a_stream_ends_it_long_before_the_call_s_time(ask: Ask) -> None:
    started = time.monotonic()
    with ModelServer(OPENAI, scripted(OPENAI, [HELLO]), always=Fault(every_s=1)) as server:
        assert asked(server, ask, timeout_s=60, MODEL_SILENCE_S="0.2").slug == "model_timeout"
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("streamed", ["0", "1"])
def test_wait_for_the_first_byte_is_no_silence(streamed: str, ask: Ask) -> None:
    """A model that thinks before it speaks, or speaks whole, has all of the call's time."""
    with ModelServer(OPENAI, scripted(OPENAI, [HELLO]), always=Fault(pause_s=1)) as server:
        assert ask(server, MODEL_STREAM=streamed, MODEL_SILENCE_S="0.5").text == "Hello."


class _Halting(BaseHTTPRequestHandler):
    """Half a body, a second of nothing, the other half."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", self.path[1:])
        self.send_header("Content-Length", "8")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(b"half")
            time.sleep(1)
            self.wfile.write(b"half")

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def halting(kind: str) -> bytes:
    """The body of such an answer of this kind, read with patience for a fifth of a second of silence."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Halting) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/{kind}"
        try:
            with http.Client().stream("POST", url, headers={}, body=b"", timeout_s=20, silence_s=0.2) as answer:
                return b"".join(answer.chunks)
        finally:
            server.shutdown()


def test_only_a_body_of_events_is_held_to_the_limit_of_silence() -> None:
    assert halting("application/json") == b"halfhalf"
    with pytest.raises(http.TooSlow):
        halting("text/event-stream")
    # The limit ends with its call: the next one on this thread waits again.
    assert halting("application/json") == b"halfhalf"


USAGES = [
    ({"prompt_tokens": 90}, (90, 25)), ({"completion_tokens": 9}, (0, 9)), ({}, (0, 25)),
    ({"prompt_tokens": 90, "completion_tokens": 9}, (90, 9)),
]  # fmt: skip


@pytest.mark.parametrize(("usage", "counted"), USAGES)
def test_count_that_a_server_does_not_name_is_estimated(
    usage: dict[str, int], counted: tuple[int, int], ask: Ask
) -> None:
    """M6: a cap on output holds with a server that counts the input alone, and the other way round."""
    choice = {"message": {"content": "x" * 100}, "finish_reason": "stop"}
    with ModelServer(OPENAI, always=Fault(body={"choices": [choice], "usage": usage})) as server:
        turn = ask(server)
    prompt = build_prompt(state(gathered()), TOOLS)
    estimated = sum(-(-len(m.content.encode()) // 4) for m in prompt.messages)
    assert (turn.input_tokens, turn.output_tokens) == (counted[0] or estimated, counted[1])


def test_broken_answers_are_counted_too(ask: Ask) -> None:
    """Else a model that only ever breaks its dialect would spend nothing."""
    with ModelServer(OPENAI, always=Fault(body={"choices": [{"message": {"content": 5}}] * 50})) as server:
        turn = ask(server)
    assert turn.fault == "invalid_answer" and turn.input_tokens > 1000 and turn.output_tokens > 300


@pytest.mark.parametrize("provider", PROVIDERS)
def test_call_under_way_is_cut_between_two_pieces(provider: str, ask: Ask) -> None:
    started = time.monotonic()
    with ModelServer(provider, scripted(provider, [Said(text="word " * 500)])) as server:
        server.always = Fault(every_s=0.05)
        looks: list[float] = []

        def third_look() -> bool:
            looks.append(time.monotonic())
            return len(looks) >= 3

        error = asked(server, ask, should_stop=third_look)
    assert (type(error), error.slug, len(looks)) == (ModelInterrupted, "interrupted", 3)
    assert time.monotonic() - started < 15, "350 pieces at 0.05 s were read to their end"


def test_key_that_comes_back_in_an_answer_is_kept_nowhere(ask: Ask) -> None:
    said = Said(
        text=f"Your key is {KEY}.", calls=(("c", "get_order", f'{{"order_id": "{KEY}"}}'),), finish="tool_calls"
    )
    with ModelServer(OPENAI, scripted(OPENAI, [said])) as server:
        turn = ask(server)
    assert KEY not in repr(turn) and turn.text == "Your key is [redacted]."


def test_dummy_key_of_a_local_server_cuts_no_words(ask: Ask) -> None:
    with ModelServer(OPENAI, scripted(OPENAI, [HELLO])) as server:
        server.key = "l"
        assert ask(server).text == "Hello."


def test_server_without_a_key_is_asked_without_one(ask: Ask) -> None:
    with ModelServer(OPENAI) as server:
        error = asked(server, ask, OPENAI_API_KEY="")
    assert error.slug == "model_key_refused" and "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("value", ["ftp://x", "api.openai.com", "https://x/v1?key=1", "https:// x"])
def test_base_url_that_is_none_stops_the_start_without_its_value(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", value)
    env.read.cache_clear()
    with pytest.raises(env.BadEnvironment, match="OPENAI_BASE_URL") as caught:
        env.read()
    env.read.cache_clear()
    assert value not in str(caught.value)
