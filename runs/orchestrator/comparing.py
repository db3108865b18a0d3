"""Compares proposals of shadow mode with what staff did in the business system, read with the read credential (M110).

It writes nothing but its verdict, and sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pydantic import ValidationError

from agentsite import clock, telemetry
from runs import agreement
from runs.agreement import Made, Verdict
from runs.backends import backend_of
from runs.orchestrator.outside import without_connection
from runs.store import own_writes, shadows
from tools import dispatcher, rules
from tools.contracts import OwnWrite, Refund
from tools.errors import NotFound, ReadFailed

FOR_S = 30.0
"""How long one task goes on; what is still due then is found by the next pass of the sweeper."""


class _CannotTell(Exception):
    """Refunds of ours and of staff cannot be told apart, or not placed in time; the text is a slug."""


def compare_due(tenant_id: str | None = None) -> int:
    """Compare what is due, of one tenant or of all. Returns how many were looked at."""
    began, looked = clock.monotonic(), 0
    while clock.monotonic() - began < FOR_S and (found := shadows.claim(tenant_id)):
        for due in found:
            with telemetry.context(run_id=due.run_id, trace_id=due.trace_id, tenant=due.tenant_id):
                compare(due)
        looked += len(found)
    return looked


def compare(due: shadows.Due) -> str:
    """Look at one proposal's orders and record the verdict; `put_off` where the business system gives no answer."""
    try:
        if not due.order_ids:
            raise _CannotTell("no_order")
        made = [one for order_id in due.order_ids for one in _made(due, order_id)]
        verdict = agreement.judge(due.proposed, made)
    except _CannotTell as doubt:
        made, verdict = [], Verdict(verdict=agreement.UNCLEAR, why=str(doubt))
    except (ReadFailed, ValidationError) as error:
        slug = error.slug if isinstance(error, ReadFailed) else "profile_unreadable"
        telemetry.log("shadow.not_compared", error=slug)
        shadows.put_off(due, slug)
        return "put_off"
    telemetry.count("shadow_compared", verdict=verdict.verdict)
    shadows.compared(due, verdict, made)
    return verdict.verdict


def _made(due: shadows.Due, order_id: str) -> Iterable[Made]:
    """The order's refunds that are not ours and were made since the request came in. Raises ReadFailed."""
    own, backend = own_writes(due.tenant_id, order_id), backend_of(due.tenant_id, due.agent)
    without_connection()
    try:
        listed = dispatcher.look_up(backend, order_id, due.trace_id)
    except NotFound:
        raise _CannotTell("order_not_found") from None
    ours = set(_ours(own, listed))
    for refund in listed:
        if refund.refund_id in ours or not rules.counted(refund.state):
            continue
        at = _moment(refund)
        if at >= due.since:
            yield Made(
                refund_id=refund.refund_id, order_id=order_id, payment_id=refund.payment_id, amount=refund.amount, at=at
            )


def _ours(own: Sequence[OwnWrite], listed: Sequence[Refund]) -> Iterable[str]:
    """Ids of listed refunds that are writes of ours, whatever run made them. Raises _CannotTell."""
    for write in own:
        found = rules.match(write, listed, claimed=rules.claimed_by_others(own, write.key))
        if found.ambiguous:
            raise _CannotTell("ours_or_theirs")
        if found.refund is not None:
            yield found.refund.refund_id


def _moment(refund: Refund) -> datetime:
    try:
        return clock.parse_rfc3339(refund.created_at or "")
    except ValueError:
        raise _CannotTell("no_time") from None
