"""One trace id through everything a run is made of (M7), and its spans as OpenTelemetry's collectors get them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentsite import queues, telemetry, tracing
from agentsite.lanes import Lanes
from runs import delivery, qualification, tasks
from runs.models import Event, Run, Webhook
from tests import edge, hints, logs
from tests.loopback import Loopback, ok, raw
from tests.models.server import ModelServer
from tests.models.speaking import OPENAI
from tests.world import World, in_new_process, s0

TRACE = "0af7651916cd43dd8448eb211c80319c"
Json = dict[str, Any]


def taken(queue: str) -> Any:
    """The oldest message that waits in a queue."""
    with current_app.connection_for_read() as link:
        channel: Any = link.default_channel
        return channel.basic_get(queue)


@pytest.fixture
def outside(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A receiver of webhooks and of spans."""
    world.settings(WEBHOOK_PRIVATE_HOSTS="127.0.0.1", WEBHOOK_TIMEOUT_S="5")
    monkeypatch.setattr(delivery, "_lanes", Lanes(most=delivery.WORKERS, each=delivery.EACH_HOST))
    with Loopback() as server:
        server.on("/", ok({"received": True}))
        yield server
    for queue in queues.ALL:
        hints.thrown_away(queue)


def test_one_trace_id_is_on_everything_a_run_is_made_of(world: World, outside: Loopback, tmp_path: Path) -> None:
    hints.thrown_away(queues.PASSES)
    client, given = edge.client(edge.token()), {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    with ModelServer(OPENAI) as model, logs.kept(tmp_path / "site.log") as log:
        world.settings(AGENT_MODELS="openai:m-2026", **model.variables())
        qualification.qualify("openai:m-2026", agent="refunds", reason="a test", by="tests")
        problem = edge.post(client, edge.RUNS, {"request_id": "req-8472"}, **given)
        assert (problem.status_code, problem.json()["trace_id"], problem.headers["X-Trace-Id"]) == (400, TRACE, TRACE)
        made = edge.post(client, edge.RUNS, edge.body(callback_url=outside.url + "/hooks"), **given)
        assert (made.status_code, made.headers["X-Trace-Id"], made.json()["trace_id"]) == (202, TRACE, TRACE)
        hint = taken(queues.PASSES)
        assert hint.headers["trace_id"] == TRACE and json.loads(hint.body)[0] == [made.json()["run_id"]]
        run = Run.objects.get(id=made.json()["run_id"])
        tasks.advance.apply(args=(str(run.pk),), headers={"trace_id": hint.headers["trace_id"]})
        run = world.resume(run, until="awaiting_approval")
        world.approve(run)
        run = world.resume(run, until="completed")
        delivery.deliver()
    parents = [request.headers["traceparent"] for request in model.requests]
    assert parents == [f"00-{TRACE}-{telemetry.span_id(str(run.pk), f'm{n}')}-01" for n in range(1, len(parents) + 1)]
    calls = world.sandbox.calls()
    assert len(calls) > 8 and {call["trace_id"] for call in calls} == {TRACE}
    assert [call["method"] for call in calls].count("POST") == 1
    check_rows(run, outside, log)


def check_rows(run: Run, outside: Loopback, log: Path) -> None:
    """What left for the client, what was signed, what was logged."""
    hooks = [call for call in outside.calls if call.target == "/hooks"]
    assert len(hooks) == Webhook.objects.filter(run=run).count() == 2
    assert {json.loads(call.body)["data"]["trace_id"] for call in hooks} == {TRACE}
    assert {call.headers["traceparent"].split("-")[1] for call in hooks} == {TRACE}
    accepted = Event.objects.get(run=run, type="run.accepted")
    assert accepted.meta["trace_id"] == run.trace_id == TRACE
    lines = [json.loads(text) for text in log.read_text().splitlines()]
    ours = [line for line in lines if line.get("run_id") == str(run.pk) and line["event"] != "decision.recorded"]
    assert len(ours) > run.last_seq and {line["trace_id"] for line in ours} == {TRACE}
    wrote = {line["span"] for line in ours if line["event"].startswith("write.")}
    assert wrote == {"t5", "t6"}


# --- spans that leave --------------------------------------------------------------------------------------------


def spans_at(collector: Loopback) -> list[Any]:
    """Every span that a collector was sent, decoded."""
    found = [call.body for call in collector.calls if call.target == "/v1/traces"]
    sent = [ExportTraceServiceRequest.FromString(body) for body in found]
    return [span for one in sent for group in one.resource_spans for scope in group.scope_spans for span in scope.spans]


def named(span: Any) -> Json:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


def test_spans_of_a_run_are_one_tree_with_its_trace_id(world: World, outside: Loopback) -> None:
    outside.on("/v1/traces", raw(b""))
    world.settings(OTEL_EXPORTER_OTLP_ENDPOINT=outside.url)
    run = world.start(script=s0())
    world.approve(run)
    run = world.resume(run, until="completed")
    tracing.flush()
    spans = spans_at(outside)
    [root] = [span for span in spans if not span.parent_span_id]
    assert (root.name, named(root)["gen_ai.operation.name"]) == ("invoke_agent refunds", "invoke_agent")
    assert {span.trace_id.hex() for span in spans} == {run.trace_id}
    assert {span.parent_span_id for span in spans if span is not root} == {root.span_id}
    assert len({span.span_id for span in spans}) == len(spans)
    ids = {
        telemetry.span_id(str(run.pk), name) for name in ("", "m1", "m2", "m3", "m4", *(f"t{n}" for n in range(1, 7)))
    }
    assert ids <= {span.span_id.hex() for span in spans}
    operations = sorted(str(named(span)["gen_ai.operation.name"]) for span in spans)
    assert operations == ["approval", *["chat"] * 4, *["execute_tool"] * 5, "gate", "invoke_agent", "verify"]
    assert all(root.start_time_unix_nano <= s.start_time_unix_nano <= s.end_time_unix_nano for s in spans)
    asked = named(next(span for span in spans if span.span_id.hex() == telemetry.span_id(str(run.pk), "m1")))
    assert asked["gen_ai.provider.name"] == "scripted" and asked["gen_ai.usage.input_tokens"] > 0
    everything = b"".join(call.body for call in outside.calls)
    for words in ("charged twice", "Thank you", "duplicate capture", "cust_5521"):
        assert words.encode() not in everything


def test_spans_that_find_no_room_are_dropped_and_hold_nobody_up(
    world: World, outside: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside.on("/v1/traces", raw(b"", 503))
    monkeypatch.setattr(tracing, "MOST_WAITING", 3)
    world.settings(OTEL_EXPORTER_OTLP_ENDPOINT=outside.url)
    counted: list[str] = []
    monkeypatch.setattr(telemetry, "count", lambda name, *_, **__: counted.append(name))
    run = world.start(script=s0())
    assert run.status == "awaiting_approval" and world.posts() == []
    assert "spans_dropped" in counted


@pytest.mark.any_database
def test_a_process_does_not_stay_for_a_collector_that_is_away() -> None:
    """It tries for as long as one export may take; what still waits then is given up at once, and counted."""
    code = (
        "from prometheus_client import REGISTRY\nfrom agentsite import clock, tracing\n"
        "tracing.EXPORT_TIMEOUT_S, at = 0, clock.now()\n"
        "tracing.keep([tracing.Step(run_id='r', trace_id='ab' * 16, span=str(n), operation='chat', what='m', start=at,"
        " end=at) for n in range(3)])\ntracing._carrier().stop()\n"
        "print(REGISTRY.get_sample_value('agentsite_spans_lost_total'))"
    )
    assert in_new_process(code, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") == "3.0"


@pytest.mark.any_database
def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys\nfrom agentsite import tracing\ntracing.keep([])\ntracing.flush()\nassert not tracing.is_on()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    assert in_new_process(code, OTEL_EXPORTER_OTLP_ENDPOINT="") == "[]"
