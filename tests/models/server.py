"""A model provider on loopback: plays a mind or a script in one dialect, JSON or streamed, counts requests, fails."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from runs.contracts import Prompt, ToolSchema
from runs.inert import inert_json
from runs.inference import offline
from runs.prompt import HEADINGS
from tests.models import speaking, strict
from tests.models.speaking import ANTHROPIC_XML, OPENAI, Json, Said

KEY = "sk-a-key-of-the-tests-alone"
PATHS = {OPENAI: "/v1/chat/completions"}
Mind = Callable[[Json], Said]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One request goes wrong: a status with a body and headers, a pause before anything, a body cut after a share, a
    pause before each event of a stream, bytes of the test's own, or `stream` answered whole."""

    status: int = 200
    body: Json | None = None
    raw: bytes | None = None
    kind: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    pause_s: float = 0
    every_s: float = 0
    cut: float | None = None
    whole: bool = False


def limited(after: str) -> Fault:
    return Fault(status=429, body={"error": {"type": "rate_limit_error"}}, headers={"Retry-After": after})


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: Json


class ModelServer(ThreadingHTTPServer):
    """Faults are used up one by one, in the order of requests; `always` is the fault of every further one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, provider: str, mind: Mind | None = None, *, always: Fault | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider, self.mind = provider, mind or investigator(provider)
        self.requests: list[Request] = []
        self.wrong: list[str] = []
        self.faults: list[Fault] = []
        self.key = KEY
        self.always = always
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        """Nobody listens any more."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is what these tests are about."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def variables(self) -> dict[str, str]:
        """The environment of a site that reaches this server."""
        name = "OPENAI" if self.provider == OPENAI else "ANTHROPIC"
        return {f"{name}_BASE_URL": self.base_url, f"{name}_API_KEY": self.key}

    def next_fault(self, request: Request) -> Fault:
        with self._lock:
            self.requests.append(request)
            return self.faults.pop(0) if self.faults else self.always or Fault()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, ModelServer)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        fault = server.next_fault(request)
        time.sleep(fault.pause_s)
        try:
            self._answer(server, request, fault)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def _answer(self, server: ModelServer, request: Request, fault: Fault) -> None:
        wrong = misspoken(server.provider, request)
        if wrong:
            server.wrong.append(wrong)
            return self._whole(fault, 400, {"error": {"type": "invalid_request_error", "message": wrong}})
        if not rightful(server.provider, request, server.key):
            return self._whole(fault, 401, {"error": {"type": "authentication_error", "message": "wrong key"}})
        if fault.raw is not None:
            return self._send(fault, fault.status, fault.kind or "application/json", fault.raw)
        if fault.status != 200 or fault.body is not None:
            return self._whole(fault, fault.status, fault.body or {})
        said = speaking.answer(server.provider, server.mind(request.body))
        if request.body.get("stream") and not fault.whole:
            return self._stream(fault, speaking.events(server.provider, said))
        return self._whole(fault, 200, said)

    def _whole(self, fault: Fault, status: int, document: Json) -> None:
        self._send(fault, status, "application/json", json.dumps(document).encode())

    def _send(self, fault: Fault, status: int, kind: str, body: bytes) -> None:
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(body)), **fault.headers})
        self.wfile.write(body if fault.cut is None else body[: int(len(body) * fault.cut)])
        self.close_connection = self.close_connection or fault.cut is not None

    def _stream(self, fault: Fault, events: Sequence[str]) -> None:
        """Events chunk by chunk; one that is cut ends as a stream that has ended, with no end of its own."""
        self._head(200, {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"})
        shown = events if fault.cut is None else events[: int(len(events) * fault.cut)]
        for event in shown:
            time.sleep(fault.every_s)
            data = f"{event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


# --- what a provider insists on ------------------------------------------------------------------------------------


def rightful(provider: str, request: Request, key: str) -> bool:
    if provider == OPENAI:
        return request.headers.get("authorization") == f"Bearer {key}"
    return request.headers.get("x-api-key") == key


def misspoken(provider: str, request: Request) -> str:
    """Why the real provider would answer 400; "" where it would not."""
    body, path = request.body, PATHS.get(provider, "/v1/messages")
    if request.path != path:
        return f"path {request.path}"
    if provider != OPENAI and request.headers.get("anthropic-version") != "2023-06-01":
        return "version"
    return strict.wrong(provider, body)


# --- minds ---------------------------------------------------------------------------------------------------------


def investigator(provider: str) -> Mind:
    """The offline model behind this dialect: it sees nothing but what the request shows it."""

    def think(body: Json) -> Said:
        prompt = prompt_in(body)
        return in_dialect(provider, json.loads(offline.answer(prompt)), prompt.tools)

    return think


def scripted(provider: str, turns: Sequence[Said]) -> Mind:
    """These turns, one a request, the last one for ever."""
    left = list(turns)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


def prompt_in(body: Json) -> Prompt:
    """The prompt that a request of any dialect carries, as text: each result after its call."""
    system = body.get("system") or body["messages"][0]["content"]
    text = system if isinstance(system, str) else "".join(block["text"] for block in system)
    tools = tuple(ToolSchema(**json.loads(line)) for line in text.partition(HEADINGS[1])[2].strip().splitlines())
    asked: dict[str, tuple[str, Any]] = {}
    user = "".join(_as_text(message, asked) for message in body["messages"] if message["role"] != "system")
    return Prompt(system=text, goal=user, tools=tools, version="", template_hash="", hash="", tools_hash="")


def _as_text(message: Json, asked: dict[str, tuple[str, Any]]) -> str:
    """A message's text, a result with the call that it answers on the line before it."""
    for call in message.get("tool_calls") or ():
        asked[call["id"]] = (call["function"]["name"], json.loads(call["function"]["arguments"]))
    if message["role"] == "tool":
        return _answered(asked[message["tool_call_id"]], message["content"])
    content = message["content"]
    if not isinstance(content, list):
        return content or ""
    said = []
    for block in content:
        if block["type"] == "tool_use":
            asked[block["id"]] = (block["name"], block["input"])
        elif block["type"] == "tool_result":
            said.append(_answered(asked[block["tool_use_id"]], f"{block['content']}\n"))
        else:
            said.append(block["text"])
    return "".join(said)


def _answered(asked: tuple[str, Any], result: str) -> str:
    return f'<call tool="{asked[0]}">{inert_json(asked[1])}</call>\n{result}'


def in_dialect(provider: str, turn: Any, tools: tuple[ToolSchema, ...]) -> Said:
    """A turn of the JSON contract as a model of this dialect says it."""
    if provider == ANTHROPIC_XML:
        return Said(text=json.dumps(turn, ensure_ascii=False))
    if isinstance(turn, dict) and "final" in turn:
        return Said(text=turn["final"])
    writes = {tool.name for tool in tools if tool.writes}
    calls = []
    for number, call in enumerate(turn if isinstance(turn, list) else [turn]):
        args = {**call["args"], **({"evidence": call["evidence"]} if call["tool"] in writes else {})}
        calls.append((f"call_{number}", call["tool"], json.dumps(args)))
    return Said(text="Let me look.", calls=tuple(calls), finish="tool_calls")
