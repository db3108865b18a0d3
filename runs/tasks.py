"""Door: the Celery tasks. They take ids, and a lost, late or doubled one changes nothing but speed."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from agentsite import env, queues, telemetry
from approvals import notify as notices
from runs import delivery
from runs.advance import advance as advance_run
from runs.orchestrator import compare_due
from runs.orchestrator import settle as settle_write
from runs.sweeper import sweep as sweep_once


@shared_task(name=queues.ADVANCE_TASK, ignore_result=True, bind=True)
def advance(task: Task[Any, Any], run_id: str) -> None:
    """One pass of one run; every line inside carries its ids."""
    with telemetry.context(run_id=run_id, **_traced(task)):
        try:
            advance_run(run_id)
        except Exception as error:  # noqa: BLE001 - the task door: the row holds the try, the sweeper comes back to it
            telemetry.count("passes_failed", error=type(error).__name__)
            telemetry.exception("pass.failed", run_id=run_id)


def _traced(task: Task[Any, Any]) -> dict[str, str]:
    """The trace id that came with the message, where whoever sent it knew one."""
    found = task.request.get("trace_id")
    return {"trace_id": found} if isinstance(found, str) and found else {}


@shared_task(name=queues.SETTLE_TASK, ignore_result=True)
def settle(write_key: str) -> None:
    """A late look at an open write of an ended run."""
    try:
        settle_write(write_key)
    except Exception as error:  # noqa: BLE001 - the task door: the write's timer comes back to it
        telemetry.count("settles_failed", error=type(error).__name__)
        telemetry.exception("settle.failed", key=write_key)


@shared_task(name=queues.DELIVER_TASK, ignore_result=True)
def deliver() -> None:
    """Webhooks that are due."""
    try:
        delivery.deliver()
    except Exception as error:  # noqa: BLE001 - the task door: what was claimed is due again when its lease is over
        telemetry.count("deliveries_failed", error=type(error).__name__)
        telemetry.exception("delivery.failed")


@shared_task(name=queues.NOTIFY_TASK, ignore_result=True)
def notify() -> None:
    """Notices to staff that are due."""
    try:
        notices.send_due()
    except Exception as error:  # noqa: BLE001 - the task door: the rows stay due
        telemetry.count("notifying_failed", error=type(error).__name__)
        telemetry.exception("notice.failed")


@shared_task(name=queues.COMPARE_TASK, ignore_result=True)
def compare() -> None:
    """Proposals of shadow mode that are due, beside what staff did."""
    try:
        compare_due()
    except Exception as error:  # noqa: BLE001 - the task door: what was claimed is due again in a minute
        telemetry.count("comparing_failed", error=type(error).__name__)
        telemetry.exception("compare.failed")


@shared_task(name=queues.SWEEP_TASK, ignore_result=True)
def sweep() -> None:
    """Beat's second trigger of the sweeper, needless while the first one works; two at once are harmless."""
    try:
        sweep_once(every_s=env.read().SWEEP_S)
    except Exception as error:  # noqa: BLE001 - the task door
        telemetry.log("sweep.failed", error=type(error).__name__)
