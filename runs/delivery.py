"""Control: sends the webhooks that are due, each at least once, and records every try. Imports no inference.

Bounded per host and per tenant, so that a receiver that hangs keeps no other tenant waiting. An answer's head decides.
Redirects are not followed: their target was never checked.
"""

from __future__ import annotations

import random

from agentsite import addresses, clock, env, queues, telemetry
from agentsite.lanes import Lanes
from runs import signing
from runs.orchestrator.outside import without_connection
from runs.store import parcels
from runs.store.parcels import Parcel
from tools.adapters import http, outgoing

WORKERS, EACH_HOST = 4, 2
EACH_TENANT = WORKERS - 1
"""One that names a new host with every run holds no more than that, and the others go on."""
LEASE_ROOM_S = 5.0
PUMP_S = 20.0
FACTOR, MOST_WAIT_S = 3.0, 6 * 3600.0
JITTER = 0.2
GONE = 410
SLUGS = {
    http.PrivateAddress: "private_address", http.ConnectFailed: "no_connection", http.TooSlow: "too_slow",
    http.TransportFailed: "cut_off",
}  # fmt: skip
SLOW, SLOW_S = ("too_slow", "no_connection"), 3.0
"""A receiver is slow by these slugs, or by this many seconds, whatever it answers after them."""
_lanes = Lanes(most=WORKERS, each=EACH_HOST, owner=EACH_TENANT)


def deliver() -> int:
    """Send what is due, one after the other, until nothing is or the time of a task is over. Returns the tries made."""
    began, made = clock.monotonic(), 0
    with _lanes.worker() as may:
        while may and _one():
            made += 1
            if clock.monotonic() - began > PUMP_S:
                queues.nudge_deliver()
                break
    return made


def _one() -> bool:
    """One try of the oldest due webhook to a host with room; False where there is none."""
    with _lanes.call(_claim, lambda one: one.host, lambda one: one.tenant_id) as parcel:
        if parcel is None:
            return False
        began = clock.monotonic()
        with telemetry.context(run_id=parcel.run_id, trace_id=parcel.trace_id):
            status, error, asked_s = _try(parcel)
            took_s = clock.monotonic() - began
            _lanes.was(parcel.host, slow=error in SLOW or took_s > SLOW_S)
            _record(parcel, status, error, round(took_s * 1000), asked_s)
    return True


def _claim(shut: set[str]) -> Parcel | None:
    return parcels.claim(shut=shut, full=_lanes.full(), lease_s=env.read().WEBHOOK_TIMEOUT_S + LEASE_ROOM_S)


def _try(parcel: Parcel) -> tuple[int | None, str, float]:
    """(status of the answer, slug of what went wrong, seconds the receiver asked us to wait)."""
    if not parcel.body:
        return None, "erased", 0.0
    if addresses.fault(parcel.url) is not None:
        return None, "address_refused", 0.0
    try:
        headers = signing.headers(
            parcel.tenant_id, parcel.agent, webhook_id=parcel.id, body=parcel.body, at=clock.now()
        )
    except signing.NoKey as missing:
        return None, str(missing), 0.0
    without_connection()
    try:
        return _post(parcel, headers)
    except http.HttpError as error:
        return None, next((slug for kind, slug in SLUGS.items() if isinstance(error, kind)), "failed"), 0.0


def _post(parcel: Parcel, headers: dict[str, str]) -> tuple[int, str, float]:
    taken = outgoing.post(
        http.for_outside(), parcel.url, headers=headers, body=parcel.body.encode(),
        timeout_s=env.read().WEBHOOK_TIMEOUT_S,
    )  # fmt: skip
    status = taken.status
    error = "" if 200 <= status < 300 else "redirected" if 300 <= status < 400 else "refused"
    return status, error, taken.retry_after_s


def _record(parcel: Parcel, status: int | None, error: str, took_ms: int, asked_s: float) -> None:
    if status is not None and not error:
        parcels.delivered(parcel, status=status, took_ms=took_ms)
        telemetry.count("webhooks_delivered")
        return
    gone = status == GONE or error == "erased"
    died = parcels.failed(
        parcel, status=status, error=error, took_ms=took_ms, wait_s=max(wait_s(parcel.tries), asked_s), gone=gone
    )
    telemetry.count("webhook_tries_failed", error=error)
    telemetry.log("webhook.failed", webhook_id=parcel.id, number=parcel.number, error=error, status=status, dead=died)


def wait_s(tries: int) -> float:
    """Seconds until the next try after so many: three times as long each, six hours at most, never all in step."""
    longest = min(env.read().WEBHOOK_FIRST_WAIT_S * FACTOR ** max(0, tries - 1), MOST_WAIT_S)
    return longest * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
