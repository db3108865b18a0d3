"""Floor: spans of runs for OpenTelemetry. Without the extra `otel` or an endpoint nothing is imported and none is kept.

A run is one trace across hours, tasks and processes: trace and span ids are pure functions of the run's ids, so each
process adds its part. Handing spans on never waits: what finds no room is dropped and counted. The names of attributes
follow OpenTelemetry's conventions for generative AI, which still move, and stand here alone. No text is an attribute.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agentsite import __version__, clock, env, telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

MOST_WAITING = 4096
"""Spans of a process that are not handed over yet; further ones are dropped."""
BATCH = 512
EXPORT_TIMEOUT_S = 2
EVERY_MS = 1000

_OPERATION = "gen_ai.operation.name"
_NAMES = {
    "agent": "gen_ai.agent.name", "provider": "gen_ai.provider.name", "requested": "gen_ai.request.model",
    "model": "gen_ai.response.model", "finish_reason": "gen_ai.response.finish_reasons",
    "input_tokens": "gen_ai.usage.input_tokens", "output_tokens": "gen_ai.usage.output_tokens",
    "tool": "gen_ai.tool.name", "call": "gen_ai.tool.call.id", "error": "error.type",
}  # fmt: skip
_LISTS = frozenset({"finish_reason"})
_CALLS_OUT = frozenset({"chat", "execute_tool"})
OURS = "agentsite."
"""What no convention names has this before it."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing a run did, between two moments. `span` "" is the run itself, which all others stand under.

    `operation` is `invoke_agent`, `chat`, `execute_tool`, or a word of ours; `what` the name after it; `facts` are ids,
    slugs and numbers by our names; `error` a slug.
    """

    run_id: str
    trace_id: str
    span: str
    operation: str
    what: str
    start: datetime
    end: datetime
    error: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def is_on() -> bool:
    """Whether spans are wanted and can be made."""
    return _carrier() is not None


def keep(steps: Sequence[Step]) -> None:
    """Hand steps over for export by a thread of this process."""
    carrier = _carrier()
    if carrier is not None:
        for step in steps:
            carrier.take(step)


class _Carrier:
    """What carries spans out of one process."""

    def __init__(self, endpoint: str, service: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._resource = Resource.create({"service.name": service, "service.version": __version__})
        self._scope = InstrumentationScope("agentsite", __version__)
        self._exporter = _counting(endpoint)
        self._processor: SpanProcessor = BatchSpanProcessor(
            self._exporter, max_queue_size=2 * MOST_WAITING, max_export_batch_size=min(BATCH, MOST_WAITING),
            schedule_delay_millis=EVERY_MS,
        )  # fmt: skip
        self._taken = 0
        _at_end(self.stop)

    def take(self, step: Step) -> None:
        if self._taken - self._exporter.gone >= MOST_WAITING:
            telemetry.count("spans_dropped")
            return
        self._taken += 1
        self._processor.on_end(_span(step, self._resource, self._scope))

    def flush(self) -> None:
        self._processor.force_flush(EXPORT_TIMEOUT_S * 1000)

    def stop(self) -> None:
        """Hand over what waits, as far as the collector takes it now: a process does not stay for one that is dead."""
        self._exporter.until = clock.monotonic() + EXPORT_TIMEOUT_S
        self._processor.shutdown()


def _counting(endpoint: str) -> Any:
    """The exporter of OTLP over HTTP, which counts what has left it, however that ended."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    class Counting(OTLPSpanExporter):
        gone, until = 0, math.inf

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            try:
                in_time = clock.monotonic() < self.until
                result = super().export(spans) if in_time else SpanExportResult.FAILURE
            finally:
                self.gone += len(spans)
            if result is not SpanExportResult.SUCCESS:
                telemetry.count("spans_lost", len(spans))
            return result

    return Counting(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)


def flush() -> None:
    """Hand over what waits, now."""
    if (carrier := _carrier()) is not None:
        carrier.flush()


def _carrier() -> _Carrier | None:
    settings = env.read()
    if not settings.OTEL_EXPORTER_OTLP_ENDPOINT:
        return None
    return _carrier_of(os.getpid(), settings.OTEL_EXPORTER_OTLP_ENDPOINT, settings.OTEL_SERVICE_NAME)


@lru_cache(maxsize=1)
def _carrier_of(pid: int, endpoint: str, service: str) -> _Carrier | None:
    """Made at first use; a forked child makes its own. None where the extra is not installed."""
    try:
        return _Carrier(endpoint, service)
    except ImportError:
        telemetry.log("tracing.off", error="extra_not_installed")
        return None


def _at_end(stop: Any) -> None:
    """A child of a pool never comes to the interpreter's own end: it leaves by its pool's."""
    atexit.register(stop)
    pools = sys.modules.get("billiard.util")
    if pools is not None:
        pools.Finalize(None, stop, exitpriority=1)


# --- spans -----------------------------------------------------------------------------------------------------


def _span(step: Step, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.status import Status, StatusCode

    return ReadableSpan(
        name=f"{step.operation} {step.what}".strip(), context=_context(step, step.span),
        parent=_context(step, "") if step.span else None, resource=resource, attributes=_attributes(step),
        kind=SpanKind.CLIENT if step.operation in _CALLS_OUT else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR if step.error else StatusCode.UNSET), instrumentation_scope=scope,
        start_time=_nanoseconds(min(step.start, step.end)), end_time=_nanoseconds(step.end),
    )  # fmt: skip


def _context(step: Step, span: str) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(
        trace_id=int(step.trace_id, 16), span_id=int(telemetry.span_id(step.run_id, span), 16), is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )  # fmt: skip


def _attributes(step: Step) -> dict[str, Any]:
    facts = {**step.facts, "error": step.error, "run_id": step.run_id, "span": step.span}
    named = {
        _NAMES.get(name, OURS + name): [found] if name in _LISTS else found
        for name, found in facts.items() if found not in (None, "")
    }  # fmt: skip
    return {_OPERATION: step.operation, **named}


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000) * 1000
