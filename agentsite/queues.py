"""Queue names and `nudge`: the only sender of tasks. A message is a hint; a lost one costs seconds, never a run."""

from __future__ import annotations

from typing import Any

from agentsite import telemetry

PASSES = "passes"
WRITES = "writes"
MAINTENANCE = "maintenance"
ALL = (PASSES, WRITES, MAINTENANCE)

ADVANCE_TASK = "runs.advance"
SETTLE_TASK = "runs.settle"
SWEEP_TASK = "runs.sweep"


def queue_for(status: str) -> str:
    """Statuses that touch money go where the write credential is (`write-path.md` 9)."""
    return WRITES if status in ("approved", "executing", "executed") else PASSES


def _send(task: str, args: list[Any], queue: str) -> bool:
    from celery import current_app

    try:
        current_app.send_task(task, args=args, queue=queue, ignore_result=True)
    except Exception as error:  # noqa: BLE001 - the row is already committed: a broker's failure may not fail a request
        telemetry.count("nudges_lost", queue=queue)
        telemetry.log("queue.nudge_lost", queue=queue, error=type(error).__name__)
        return False
    return True


def nudge(run_id: str, status: str) -> bool:
    """Ask a worker to advance a run now. Returns whether the broker took the message; never raises."""
    return _send(ADVANCE_TASK, [run_id], queue_for(status))


def nudge_settle(write_key: str) -> bool:
    """Ask a writes worker to look an open write of an ended run up again."""
    return _send(SETTLE_TASK, [write_key], WRITES)


def depth(queue: str) -> int:
    """Messages that still wait in a queue; 0 where the broker cannot say (an over-eager hint costs nothing)."""
    from amqp.exceptions import ChannelError
    from celery import current_app

    try:
        with current_app.connection_for_read() as link:
            link.ensure_connection(max_retries=1, interval_start=0, interval_step=0, interval_max=0)
            channel: Any = link.channel()
            return int(channel.queue_declare(queue, passive=True).message_count)
    except ChannelError:
        return 0  # Redis keeps no list for an empty queue
    except Exception as error:  # noqa: BLE001 - the sweeper must not depend on the broker
        telemetry.log("queue.depth_unknown", queue=queue, error=type(error).__name__)
        return 0
