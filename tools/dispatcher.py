"""Runs what the gate let through: reads side by side, one write through the executor. Imports no gate and no runs.

Every result is tied to its call. What went wrong is a typed result, never a guess (M57, M58). An order of another
customer is refused here, in code, whatever the model asked (M8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from agentsite import clock
from tools import arguments, executor, facts, registry
from tools.contracts import (
    Backend,
    Credential,
    Effect,
    Json,
    Order,
    Payment,
    ReadCall,
    ReadResult,
    Refund,
    Release,
    Scope,
    Search,
    Searches,
    SentMark,
    WriteAnswer,
)
from tools.errors import ReadCancelled, ReadFailed, ToolError, UpstreamUnavailable

THREADS = 16
FOUND = {"search_policy": "passages", "search_cases": "cases"}
"""Under which name the result of each search lists what it found."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Fetched(Generic[T]):
    """A value or an error, when it came and how long it took. `left`: its handler was not waited for any longer."""

    value: T | None
    error: ToolError | None
    at: datetime
    took_ms: int
    left: bool = False


def run_reads(
    scope: Scope,
    backend: Backend,
    calls: tuple[ReadCall, ...],
    searches: Searches,
    *,
    cancelled: Callable[[], bool] | None = None,
) -> tuple[ReadResult, ...]:
    """The results in the order of the calls. A search runs in this thread, which holds the database.

    Calls are the gate's: a write among them, or arguments that are not normalised, is our own bug and asserts.
    `cancelled` is asked in this thread now and then: once it is so, what has not come yet is a result `cancelled`.
    """
    assert backend.tenant_id == scope.tenant_id, "a backend of another tenant"
    for call in calls:
        assert registry.entry(call.tool).effect is Effect.READ, "a write among the reads"
        assert registry.normalise(call.tool, call.args) == call.args, "arguments that are not normalised"
    slugs = [_out_of_scope(scope, call) for call in calls]
    remote = [call for call, slug in zip(calls, slugs, strict=True) if slug is None and _is_remote(call)]
    within_s = max([registry.timeout_s(c.tool) for c in calls], default=0)
    try:
        with facts.permitted(backend) if remote else nullcontext():
            with facts.Parallel(THREADS, within_s=within_s, cancelled=cancelled) as side:
                return _results(calls, slugs, searches, _Reads(side, scope, backend, remote).result)
    except UpstreamUnavailable as error:  # from the breaker: what a read itself raises is a typed result already
        away = _Fetched[Json](value=None, error=error, at=clock.now(), took_ms=0)
        return _results(calls, slugs, searches, lambda call: _failed_read(call, away))


def _results(
    calls: tuple[ReadCall, ...], slugs: list[str | None], searches: Searches, remote: Callable[[ReadCall], ReadResult]
) -> tuple[ReadResult, ...]:
    """In the order of the calls; searches first, while the remote reads are under way."""
    local = [
        _searched(call, searches[call.tool]) if slug is None and not _is_remote(call) else None
        for call, slug in zip(calls, slugs, strict=True)
    ]
    return tuple(
        _failed(call, slug, retryable=False) if slug is not None else found or remote(call)
        for call, slug, found in zip(calls, slugs, local, strict=True)
    )


def run_write(release: Release, mark: SentMark, backend: Backend) -> WriteAnswer:
    """Sends the released write once. Raises Refused, OutcomeUnknown, or TamperedRelease before anything is sent."""
    return executor.execute(release, mark, backend)


def can_write(release: Release, backend: Backend) -> bool:
    """Whether this process holds the write credential, and the backend's breaker is closed. Raises TamperedRelease."""
    return executor.is_ready(release, backend)


def look_up(backend: Backend, order_id: str, trace_id: str) -> tuple[Refund, ...]:
    """The order's refunds by one independent read, not repeated. Raises ReadFailed: no answer is no absence.

    An open breaker is no answer either; it keeps a look-up waiting for its cooling time and no longer.
    """
    with facts.permitted(backend, look_up=True):
        return facts.read_refunds(backend, order_id, trace_id, retries=0)


def _is_remote(call: ReadCall) -> bool:
    return registry.entry(call.tool).credential is Credential.COMMERCE_READ


def _out_of_scope(scope: Scope, call: ReadCall) -> str | None:
    if call.tool not in scope.read_tools:
        return "tool_out_of_scope"
    if _is_remote(call) and scope.order_ids is not None and call.args["order_id"] not in scope.order_ids:
        return "order_out_of_scope"
    return None


class _Reads:
    """The remote reads of one step: each order is read once, whatever number of calls is about it."""

    def __init__(self, parallel: facts.Parallel, scope: Scope, backend: Backend, calls: list[ReadCall]) -> None:
        self._parallel, self._scope, self._backend = parallel, scope, backend
        self._started_at = clock.monotonic()
        ids = dict.fromkeys(str(call.args["order_id"]) for call in calls)
        self._orders = {order_id: self._start(facts.read_order, order_id) for order_id in ids}
        wanted = dict.fromkeys((call.tool, str(call.args["order_id"])) for call in calls if call.tool in _LISTS)
        self._lists = {(tool, order_id): self._start(_LISTS[tool], order_id) for tool, order_id in wanted}

    def _start(self, read: Callable[[Backend, str, str], T], order_id: str) -> Future[_Fetched[T]]:
        return self._parallel.start(_timed, read, self._backend, order_id, self._scope.trace_id)

    def result(self, call: ReadCall) -> ReadResult:
        order_id = str(call.args["order_id"])
        order = self._wait(self._orders[order_id])
        if order.error is not None or order.value is None:
            return _failed_read(call, order)
        if order.value.customer_id != self._scope.customer_id:
            return _failed(call, "order_not_yours", retryable=False, took_ms=order.took_ms)
        if call.tool == "get_order":
            return _succeeded(call, _order_content(order.value), order)
        found = self._wait(self._lists[call.tool, order_id])
        return _failed_read(call, found) if found.value is None else _succeeded(call, found.value, found)

    def _wait(self, future: Future[_Fetched[T]]) -> _Fetched[T]:
        try:
            return self._parallel.result(future)
        except ReadFailed as error:
            took_ms, left = _ms_since(self._started_at), not (future.done() or future.cancelled())
            return _Fetched(value=None, error=error, at=clock.now(), took_ms=took_ms, left=left)


def _timed(read: Callable[[Backend, str, str], T], backend: Backend, order_id: str, trace_id: str) -> _Fetched[T]:
    started_at = clock.monotonic()
    try:
        value, error = read(backend, order_id, trace_id), None
    except ReadFailed as failed:
        return _Fetched(value=None, error=failed, at=clock.now(), took_ms=_ms_since(started_at))
    return _Fetched(value=value, error=error, at=clock.now(), took_ms=_ms_since(started_at))


def _ms_since(moment: float) -> int:
    return round((clock.monotonic() - moment) * 1000)


def _searched(call: ReadCall, search: Search) -> ReadResult:
    started_at = clock.monotonic()
    try:
        found = search(str(call.args["query"]))
    except ToolError as error:
        failed = _Fetched[Json](value=None, error=error, at=clock.now(), took_ms=_ms_since(started_at))
        return _failed_read(call, failed)
    found = found[: call.args.get("limit", arguments.PASSAGES)]
    content: Json = {FOUND[call.tool]: found}
    fetched = _Fetched[Json](value=content, error=None, at=clock.now(), took_ms=_ms_since(started_at))
    is_policy = bool(found) and call.tool == "search_policy"
    meta = {name: found[0][name] for name in ("doc", "version", "section")} if is_policy else {}
    return _succeeded(call, content, fetched, meta)


def _succeeded(call: ReadCall, content: Json, found: _Fetched[T], meta: Json | None = None) -> ReadResult:
    return ReadResult(
        call_id=call.call_id,
        tool=call.tool,
        args=call.args,
        ok=True,
        content=content,
        fetched_at=found.at,
        took_ms=found.took_ms,
        meta=meta or {},
    )


def _failed_read(call: ReadCall, found: _Fetched[T]) -> ReadResult:
    error = found.error
    assert error is not None, "a read without a value has an error"
    detail = str(error) if str(error) != error.slug else ""
    failed = _failed(call, error.slug, retryable=error.retryable, took_ms=found.took_ms, detail=detail)
    given_up = isinstance(error, ReadCancelled) or str(error) == "timeout"
    handler = _cleaned(call, found.left) if given_up else ""
    content = failed.content | ({"handler": handler} if handler else {})
    return replace(failed, content=content, retry_in_s=error.retry_after_s)


def _cleaned(call: ReadCall, left: bool) -> str:
    """What became of a handler that was given up: its own hook knows best, if it has one (M120)."""
    hook = registry.entry(call.tool).cancel
    if hook is None:
        return "still_running" if left else "cleaned_up"
    try:
        return "cleaned_up" if hook(call.call_id, call.args) else "still_running"
    except ToolError:
        return "still_running"


def _failed(call: ReadCall, slug: str, *, retryable: bool, took_ms: int = 0, detail: str = "") -> ReadResult:
    content: Json = {"error": slug, "retryable": retryable, "tool": call.tool}
    return ReadResult(
        call_id=call.call_id,
        tool=call.tool,
        args=call.args,
        ok=False,
        content=content | ({"detail": detail} if detail else {}),
        fetched_at=clock.now(),
        took_ms=took_ms,
        retryable=retryable,
    )


def _order_content(order: Order) -> Json:
    return {
        "order_id": order.order_id,
        "customer_id": order.customer_id,
        "total": order.total.wire(),
        "amount_due": order.amount_due.wire(),
        "status": order.status,
        "note": order.note,
    }


def _payments(backend: Backend, order_id: str, trace_id: str) -> Json:
    payments = facts.read_payments(backend, order_id, trace_id)
    return {"order_id": order_id, "payments": [_payment_content(payment) for payment in payments]}


def _payment_content(payment: Payment) -> Json:
    return {
        "payment_id": payment.payment_id,
        "order_id": payment.order_id,
        "state": payment.state,
        "amount": payment.amount.wire(),
        "captured_at": payment.captured_at,
        "note": payment.note,
    }


def _refunds(backend: Backend, order_id: str, trace_id: str) -> Json:
    refunds = facts.read_refunds(backend, order_id, trace_id)
    return {"order_id": order_id, "refunds": [_refund_content(refund) for refund in refunds]}


def _refund_content(refund: Refund) -> Json:
    return {
        "refund_id": refund.refund_id,
        "payment_id": refund.payment_id,
        "order_id": refund.order_id,
        "state": refund.state,
        "amount": refund.amount.wire(),
        "created_at": refund.created_at,
    }


_LISTS: Mapping[str, Callable[[Backend, str, str], Json]] = {"get_payments": _payments, "get_refund_status": _refunds}
