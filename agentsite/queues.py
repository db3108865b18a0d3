"""Queue names and `nudge`: the only sender of tasks. A message is a hint; a lost one costs seconds, never a run."""

from __future__ import annotations

from typing import Any

from agentsite import clock, telemetry

PASSES = "passes"
WRITES = "writes"
MAINTENANCE = "maintenance"
ALL = (PASSES, WRITES, MAINTENANCE)

ADVANCE_TASK = "runs.advance"
SETTLE_TASK = "runs.settle"
SWEEP_TASK = "runs.sweep"
DELIVER_TASK = "runs.deliver"
NOTIFY_TASK = "approvals.notify"
COMPARE_TASK = "runs.compare"


def queue_for(status: str) -> str:
    """Statuses that touch money go where the write credential is (`write-path.md` 9)."""
    return WRITES if status in ("approved", "executing", "executed") else PASSES


class BrokerAway(Exception):
    """The broker did not say how many messages wait."""


HUSH = 2.0
"""After a publish that failed, this many times as long as it took, nobody in this process tries again by himself."""
_quiet_until = 0.0


def _send(task: str, args: list[Any], queue: str, *, insist: bool, trace_id: str = "") -> bool:
    from celery import current_app

    global _quiet_until
    began = clock.monotonic()
    if began < _quiet_until and not insist:
        telemetry.count("nudges_lost", queue=queue)
        return False
    try:
        current_app.send_task(task, args=args, queue=queue, ignore_result=True, headers={"trace_id": trace_id or None})
    except Exception as error:  # noqa: BLE001 - the row is already committed: a broker's failure may not fail a request
        _quiet_until = clock.monotonic() + HUSH * (clock.monotonic() - began)
        telemetry.count("nudges_lost", queue=queue)
        telemetry.log("queue.nudge_lost", queue=queue, error=type(error).__name__)
        return False
    _quiet_until = 0.0
    return True


def nudge(run_id: str, status: str, *, insist: bool = False, trace_id: str = "") -> bool:
    """Ask a worker to advance a run now. Returns whether the broker took the message; never raises.

    The run's trace id goes with it as a header, where the caller or this process knows it.

    While the broker keeps publishers waiting, most nudges are dropped at once: requests go on, and the sweeper, which
    insists, sends what is missing.
    """
    known = telemetry.ids_of(run_id)
    trace_id = trace_id or (known.trace_id if known else "")
    return _send(ADVANCE_TASK, [run_id], queue_for(status), insist=insist, trace_id=trace_id)


def nudge_settle(write_key: str) -> bool:
    """Ask a writes worker to look an open write of an ended run up again."""
    return _send(SETTLE_TASK, [write_key], WRITES, insist=True)


def nudge_deliver() -> bool:
    """Ask a maintenance worker to send what webhooks are due."""
    return _send(DELIVER_TASK, [], MAINTENANCE, insist=False)


def nudge_notify() -> bool:
    """Ask a maintenance worker to send what notices to staff are due."""
    return _send(NOTIFY_TASK, [], MAINTENANCE, insist=False)


def nudge_compare() -> bool:
    """Ask a maintenance worker to compare what proposals of shadow mode are due."""
    return _send(COMPARE_TASK, [], MAINTENANCE, insist=False)


def depth(queue: str) -> int:
    """Messages that still wait in a queue. Raises BrokerAway where the broker cannot say."""
    from celery import current_app

    try:
        with current_app.connection_for_write() as link:
            link.ensure_connection(max_retries=1, interval_start=0, interval_step=0, interval_max=0)
            channel: Any = link.channel()
            # Never passive: on Redis that looks for the list under its name without our prefix, and finds none.
            return int(channel.queue_declare(queue, durable=True, auto_delete=False).message_count)
    except Exception as error:  # noqa: BLE001 - whatever its client raises, the sweeper goes on without the broker
        telemetry.log("queue.depth_unknown", queue=queue, error=type(error).__name__)
        raise BrokerAway(type(error).__name__) from None
