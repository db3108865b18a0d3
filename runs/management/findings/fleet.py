"""Whether somebody works, recovery runs, nothing is stuck or unsettled, and no breaker is open. Part of `doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Q

from agentsite import dbtime, queues
from agentsite.text import visible
from approvals import labels
from approvals.models import Approval
from approvals.states import Approved
from runs import fleet
from runs.management.findings.finding import Finding, fail, ok, warn
from runs.models import LIVE_VALUES, OPEN_WRITES, Process, Run, Sweeper, Write
from tools import breaker

STUCK_S = 60.0
SWEEP_LATE_S = 30.0
OPEN_LONG_S = 600.0
MAX_NAMED = 5


def examine() -> Iterator[Finding]:
    """Findings on live processes, the sweeper, runs, approvals, writes and circuit breakers."""
    alive = fleet.alive()
    yield _processes(alive)
    yield _sweeper(alive)
    yield _runs(alive)
    yield _approvals()
    yield _writes()
    yield _breakers()


def _processes(alive: list[Process]) -> Finding:
    if not alive:
        return warn("processes", "nobody works: start `manage.py up`, or `web` and `worker`")
    hung = [p.name for p in alive if p.hung]
    if hung:
        return fail("processes", f"a thread is past twice its deadline in {', '.join(hung)}: restart it")
    names = ", ".join(f"{p.kind} {p.name}{f' at {p.url}' if p.url else ''}" for p in alive[:MAX_NAMED])
    idle = [q for q in queues.ALL if not any(q in p.queues.split(",") for p in alive)]
    if idle:
        return warn("processes", f"nobody consumes {', '.join(idle)}; alive: {names}")
    return ok("processes", f"{len(alive)} alive: {names}")


def _sweeper(alive: list[Process]) -> Finding:
    last = Sweeper.objects.filter(id=1).first()
    if last is None or last.last_pass_at is None:
        return warn("sweeper", "has never made a pass; it lives in `up` and in every worker")
    age_s = (dbtime.now() - last.last_pass_at).total_seconds()
    words = f"last pass {labels.duration(age_s)} ago, {last.last_pass_ms} ms, {last.last_found} due"
    if age_s > SWEEP_LATE_S:
        return fail("sweeper", f"{words}: recovery stands still") if alive else warn("sweeper", words)
    return ok("sweeper", words)


def _runs(alive: list[Process]) -> Finding:
    live = Run.objects.filter(status__in=LIVE_VALUES, completed_at=None)
    now = dbtime.now()
    free = Q(lease_token__isnull=True) | Q(lease_until__lt=now)
    stuck = live.filter(free, due_at__lt=now - timedelta(seconds=STUCK_S)).order_by("due_at")
    number = stuck.count()
    if number:
        names = ", ".join(visible(run.request_id) for run in stuck[:MAX_NAMED])
        words = f"{number} due for over {STUCK_S:g} s and taken by nobody: {names}"
        return fail("runs", words) if alive else warn("runs", words)
    return ok("runs", f"{live.count()} live, none stuck")


def _approvals() -> Finding:
    pending = Approval.objects.filter(status=Approved.PENDING.value)
    first = pending.order_by("expires_at").first()
    if first is None:
        return ok("approvals", "none waits for a person")
    left_s = (first.expires_at - dbtime.now()).total_seconds()
    return ok("approvals", f"{pending.count()} wait for a person, the next expires in {labels.duration(left_s)}")


def _writes() -> Finding:
    still = Write.objects.filter(state__in=OPEN_WRITES)
    unknown = still.filter(state="unknown").order_by("intent_at")
    if unknown:
        names = ", ".join(visible(w.key) for w in unknown[:MAX_NAMED])
        return warn("writes", f"{len(unknown)} with an unknown end, looked up again by their timer: {names}")
    late = still.filter(intent_at__lt=dbtime.now() - timedelta(seconds=OPEN_LONG_S)).order_by("intent_at")
    if late:
        names = ", ".join(f"{visible(w.key)} ({w.state})" for w in late[:MAX_NAMED])
        return warn("writes", f"{len(late)} open for over {OPEN_LONG_S / 60:g} min: {names}")
    return ok("writes", f"{still.count()} open, none with an unknown end")


def _breakers() -> Finding:
    found = breaker.standing()
    if not found:
        return ok("breakers", "all are closed")
    words = [
        f"{one.dependency} of {visible(one.account)} after {one.failures} failures, asked again in {one.left_s:.1f} s"
        for one in found[:MAX_NAMED]
    ]
    return warn("breakers", f"{len(found)} not closed: {'; '.join(words)}")
