"""Live facts of the business system, read with the read credential alone; never the write token, never runs.

A read that fails raises: nothing here returns an empty list for an outage (M58). Reads may be repeated at once, as
often as their registry entry says and within their own time; everything longer is a due time in a row. Every read asks
the business system's breaker first (M59), in the calling thread: the threads that read hold no database connection.
"""

from __future__ import annotations

import contextvars
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ParamSpec, Self, TypeVar

import stamina
from pydantic import SecretStr

from agentsite import clock
from tools import breaker, credentials, registry
from tools.adapters import commerce, http
from tools.contracts import Backend, Order, OrderFacts, OwnWrite, Payment, Refund
from tools.errors import BadAnswer, NotFound, ReadCancelled, ReadFailed, UpstreamUnavailable

MAX_WAIT_S = 1.0
GRACE_S = 0.5
LOOK_S = 1.0
MAX_IDLE = 16
"""Pools that are kept for the next steps, of each size."""

T = TypeVar("T")
P = ParamSpec("P")
Fetch = Callable[[http.Client, str, SecretStr, str, str, float], T]

_watch: contextvars.ContextVar[breaker.Watch | None] = contextvars.ContextVar("watch", default=None)


@contextmanager
def permitted(backend: Backend, *, look_up: bool = False) -> Iterator[None]:
    """One question to the breaker for all reads of a step, and one report; inside, reads of this backend ask no more.

    Enter it in a thread that may use the database. A `look_up` waits for no time that the other side named. Raises
    UpstreamUnavailable `breaker_open`, and nothing was called.
    """
    account = breaker.account_of(backend.tenant_id, backend.url)
    with breaker.watched(breaker.BUSINESS_SYSTEM, account, look_up=look_up) as watch:
        mark = _watch.set(watch)
        try:
            yield
        finally:
            _watch.reset(mark)


def read_order(backend: Backend, order_id: str, trace_id: str, *, retries: int | None = None) -> Order:
    """Raises ReadFailed."""
    return _read("get_order", commerce.get_order, backend, order_id, trace_id, retries)


def read_payments(backend: Backend, order_id: str, trace_id: str, *, retries: int | None = None) -> tuple[Payment, ...]:
    """Raises ReadFailed."""
    return _read("get_payments", commerce.get_payments, backend, order_id, trace_id, retries)


def read_refunds(backend: Backend, order_id: str, trace_id: str, *, retries: int | None = None) -> tuple[Refund, ...]:
    """Raises ReadFailed."""
    return _read("get_refund_status", commerce.get_refunds, backend, order_id, trace_id, retries)


def read_facts(
    backend: Backend,
    order_id: str,
    trace_id: str,
    *,
    own: tuple[OwnWrite, ...],
    epoch: int,
    retries: int | None = None,
    within_s: float | None = None,
) -> OrderFacts:
    """The three reads side by side. `own` and `epoch` are read by the caller before this; `retries` None: as often as
    the registry says; `within_s` None: as long as it says. Raises ReadFailed."""
    read_at, longest_s = clock.now(), registry.timeout_s("get_order")
    bound_s = longest_s if within_s is None else min(within_s, longest_s)
    with permitted(backend), Parallel(3, within_s=bound_s) as parallel:
        order = parallel.start(read_order, backend, order_id, trace_id, retries=retries)
        payments = parallel.start(read_payments, backend, order_id, trace_id, retries=retries)
        refunds = parallel.start(read_refunds, backend, order_id, trace_id, retries=retries)
        return OrderFacts(
            order=parallel.result(order),
            payments=_listed(parallel, payments),
            refunds=_listed(parallel, refunds),
            own=own,
            epoch=epoch,
            read_at=read_at,
        )


def _borrow(threads: int) -> ThreadPoolExecutor:
    """Idle threads of an earlier step of this process, or new ones: to begin them costs more than many a read."""
    try:
        return _idle(os.getpid(), threads).pop()
    except IndexError:
        return ThreadPoolExecutor(threads, thread_name_prefix="read")


def _give_back(pool: ThreadPoolExecutor, threads: int) -> None:
    if len(idle := _idle(os.getpid(), threads)) < MAX_IDLE:
        idle.append(pool)
    else:
        pool.shutdown(wait=False)


@lru_cache(maxsize=4)
def _idle(pid: int, threads: int) -> deque[ThreadPoolExecutor]:
    """Pools of this process; a fork takes no threads along."""
    return deque()


class Parallel:
    """A few threads for one step, and the last fence of its calls: one that is stuck is left behind, not waited for.

    `cancelled` is asked now and then, in the thread that waits, whether the results are still wanted.
    """

    def __init__(self, threads: int, *, within_s: float, cancelled: Callable[[], bool] | None = None) -> None:
        self._threads, self._pool, self._started = threads, _borrow(threads), list[Future[Any]]()
        self._ends_at = clock.monotonic() + within_s + GRACE_S
        self._asks, self._over = cancelled, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if all(one.done() for one in self._started):
            _give_back(self._pool, self._threads)
        else:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs the call beside the others, with this thread's log context."""
        context = contextvars.copy_context()
        future = self._pool.submit(lambda: context.run(call, *args, **kwargs))
        self._started.append(future)
        return future

    def result(self, future: Future[T]) -> T:
        """What the call returned or raised; UpstreamUnavailable where its time is over, ReadCancelled where nobody
        wants it any more."""
        while True:
            try:
                return future.result(self._next_look_s())
            except TimeoutError:
                self._give_up(future)

    def _next_look_s(self) -> float:
        left_s = max(self._ends_at - clock.monotonic(), 0)
        return 0 if self._over else left_s if self._asks is None else min(left_s, LOOK_S)

    def _give_up(self, future: Future[T]) -> None:
        """Raises where there is no more waiting for it; a call that never began then never does."""
        if clock.monotonic() >= self._ends_at:
            future.cancel()
            error = UpstreamUnavailable("timeout")
            if (watch := _watch.get()) is not None:
                watch.saw(error)
            raise error from None
        self._over = self._over or (self._asks is not None and self._asks())
        if self._over:
            future.cancel()
            raise ReadCancelled from None


def _listed(parallel: Parallel, started: Future[T]) -> T:
    """A list of an order read in the same step: that it is not there contradicts that order, and says nothing."""
    try:
        return parallel.result(started)
    except NotFound:
        raise BadAnswer("no list of an order that is there") from None


def _read(tool: str, fetch: Fetch[T], backend: Backend, order_id: str, trace_id: str, retries: int | None) -> T:
    token = credentials.read_token(backend)
    watch = _watch.get()
    if watch is None or watch.account != breaker.account_of(backend.tenant_id, backend.url):
        with permitted(backend):
            return _read(tool, fetch, backend, order_id, trace_id, retries)
    try:
        times = registry.entry(tool).retries if retries is None else retries
        found = _repeated(tool, fetch, backend, token, order_id, trace_id, times)
    except ReadFailed as error:
        watch.saw(error)
        raise
    watch.saw(None)
    return found


def _repeated(
    tool: str, fetch: Fetch[T], backend: Backend, token: SecretStr, order_id: str, trace_id: str, retries: int
) -> T:
    budget_s = registry.timeout_s(tool)
    ends_at = clock.monotonic() + budget_s
    wait_max = min(MAX_WAIT_S, budget_s / 8)

    def again(error: Exception) -> bool:
        # One that named a time is not asked again within this step.
        retryable = isinstance(error, ReadFailed) and error.retryable and error.retry_after_s is None
        return retryable and ends_at - clock.monotonic() > 2 * wait_max

    for attempt in stamina.retry_context(
        on=again,
        attempts=1 + retries,
        timeout=None,
        wait_initial=wait_max / 8,
        wait_max=wait_max,
        wait_jitter=wait_max / 2,
    ):
        with attempt:
            left_s = ends_at - clock.monotonic()
            return fetch(http.shared(), backend.url, token, order_id, trace_id, left_s)
    raise AssertionError("a retry ends with an answer or an error")
