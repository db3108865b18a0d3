"""A server that sends back the key it was given: wherever it puts it, no row and no line of the log keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps

from tests.breakers import time_goes_by
from tests.integration.test_dialect_runs import admit, nothing_moved, reached
from tests.models import odd
from tests.models.kinds import MODES, TYPES
from tests.models.odd import Call, Odd
from tests.models.server import Fault
from tests.models.speaking import PROVIDERS
from tests.world import World

pytestmark = pytest.mark.any_database

KEY = "sk-proj-Z9_x/y+8472==a-key-that-comes-back"
RAW = json.dumps(KEY)
ESCAPED = '"' + "".join(f"\\u{ord(c):04X}" for c in KEY) + '"'
READ = '{"order_id": "8472"}'
ECHOES = {
    "text": Odd(text=RAW),
    "draft": Odd(says=json.dumps(f"Your key is {KEY}, thank you.")),
    "escaped draft": Odd(says=ESCAPED),
    "escaped text": Odd(text=json.dumps(ESCAPED)),
    "escaped arguments": Odd(calls=(Call(name='"search_policy"', args=f'{{"query": {ESCAPED}}}', evidence=None),)),
    "arguments with escaped strokes": Odd(
        calls=(Call(name='"search_policy"', args=f'{{"query": {RAW}}}'.replace("/", "\\/"), evidence=None),)),
    "arguments": Odd(calls=(Call(name='"search_policy"', args=f'{{"query": {RAW}}}', evidence=None),)),
    "name of an argument": Odd(
        calls=(Call(name='"get_order"', args=f'{{{RAW}: 1, "order_id": "8472"}}', evidence=None),)),
    "name of a tool": Odd(calls=(Call(name=RAW),)),
    "id of a call": Odd(calls=(Call(name='"get_order"', args=READ, evidence=None, id=RAW),)),
    "finish": Odd(says=RAW, finish=RAW),
    "model": Odd(calls=(Call(name='"get_payments"', args=READ, evidence=None),), model=RAW),
    "field of its own": Odd(calls=(Call(name='"get_order"', args=READ, evidence=None),), top=(("x_echo", RAW),)),
    "field's name": Odd(calls=(Call(name='"get_order"', args=READ, evidence=None),), top=((KEY, "1"),)),
    "usage": Odd(says='"x"', count=RAW),
    "broken answer": Odd(says='"x"', top=(("a", RAW), ("a", RAW))),
}  # fmt: skip
PAGE = f"<html>{KEY}</html>".encode()
FAILURES = [
    Fault(status=500, body={"error": {"message": KEY}}), Fault(status=429, body={"error": {"type": KEY}}),
    Fault(raw=PAGE, kind="text/html"), Fault(raw=PAGE, kind="text/event-stream"),
    Fault(raw=json.dumps({"error": {"type": KEY, "code": KEY}}).encode()),
    Fault(status=200, body={"status": KEY}), Fault(status=503, headers={"X-Echo": KEY, "Retry-After": KEY}, body={}),
]  # fmt: skip


def rows() -> Iterator[tuple[str, Any]]:
    for model in apps.get_models():
        yield from ((model._meta.label, row) for row in model._default_manager.values())


def kept() -> list[str]:
    """Where the key stands in the database."""
    return [f"{label}: {name}" for label, row in rows() for name, value in row.items() if KEY in _text(value)]


def _text(value: Any) -> str:
    """A value as text, JSON without its escapes."""
    said = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return said + said.replace("\\/", "/").replace("\\\\", "\\")


def ask_all(world: World, provider: str, mode: str, faults: list[Fault]) -> None:
    """One run a fault, each taken a pass further; then they all end, for this provider knows the model no more."""
    runs = []
    with reached(world, provider, streamed=mode == "sse", variables={"RETRY_S": "60"}) as server:
        server.key = KEY
        world.settings(**server.variables())
        for number, fault in enumerate(faults):
            server.faults, seen = [fault], len(server.requests)
            runs.append(admit(world, request_id=f"req-{number}"))
            world.step(runs[-1])
            assert len(server.requests) > seen, "nothing was asked"
        server.always = Fault(status=404, body={"error": {"message": KEY}})
        for run in runs:
            world.later(run, 3600)
            time_goes_by(3600)
            world.resume(run, until="escalated")


def told(provider: str, mode: str, turn: Odd) -> Fault:
    body = odd.whole(provider, turn) if mode == "json" else odd.stream(odd.events(provider, turn))
    return Fault(raw=body, kind=TYPES[mode])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_key_that_comes_back_is_kept_in_no_row_and_no_log(
    world: World, provider: str, mode: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    world.settings(AGENT_PASSES_PER_TASK="1", BREAKER_FAILURES="1000")
    ask_all(world, provider, mode, [told(provider, mode, turn) for turn in ECHOES.values()] + FAILURES)
    said = capfd.readouterr()
    assert kept() == []
    assert KEY not in caplog.text + said.out + said.err
    nothing_moved(world)
