"""Control: tells staff by mail and chat of approvals that wait, that are about to expire, and that did.

A failure blocks nothing: it is tried again, then kept as failed, as console, doctor and metrics show. Imports no runs.
"""

from __future__ import annotations

import json
import smtplib
from datetime import UTC, datetime

from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend
from django.db import connection

from agentsite import clock, dbtime, env, mail, queues, telemetry
from agentsite.lanes import Lanes
from approvals import notices, queue, telling
from approvals.models import Approval, Notice
from approvals.states import Approved
from approvals.telling import Message
from tools.adapters import http, outgoing

WORKERS, EACH_PLACE = 2, 1
LEASE_S = 120.0
PUMP_S = 20.0
FIRST_WAIT_S, FACTOR, MOST_WAIT_S = 30.0, 3.0, 3600.0
MAIL_TIMEOUT_S = 10
REMIND_AT_ONCE = 200
MAX_TENANTS = 1000
PERMANENT = 500
_lanes = Lanes(most=WORKERS, each=EACH_PLACE)


class NotTaken(Exception):
    """A notice that was not taken; the message is a slug. `for_good`: trying again is of no use."""

    def __init__(self, slug: str, *, for_good: bool = False) -> None:
        super().__init__(slug)
        self.for_good = for_good


# --- what is to be told --------------------------------------------------------------------------------------


class Rounds:
    """The look of one sweeper: reminders whose time has come, and once a period what waits."""

    def __init__(self) -> None:
        self._period = -1

    def turns(self) -> bool:
        """Whether the next look is the first one of a period."""
        return self._period != _period()

    def look(self) -> bool:
        """Leave what is to be told now; whether anything is due to be sent."""
        queue.remind(REMIND_AT_ONCE)
        if self.turns():
            leave_digests(period := _period())
            self._period = period
        return notices.due(shut=_lanes.shut())


def _period() -> int:
    return int(clock.now().timestamp() // env.read().NOTIFY_DIGEST_S)


def leave_digests(period: int) -> None:
    """A digest for every tenant where something has waited since before the period began."""
    began = datetime.fromtimestamp(period * env.read().NOTIFY_DIGEST_S, UTC)
    rows = Approval.objects.filter(status=Approved.PENDING, requested_at__lt=began).order_by("tenant_id")
    for tenant_id in rows.values_list("tenant_id", flat=True).distinct()[:MAX_TENANTS]:
        notices.leave_digest(tenant_id, clock.rfc3339(began))


# --- telling it ----------------------------------------------------------------------------------------------


def send_due() -> int:
    """Send the notices that are due, until none is or the time of a task is over. Returns the tries made."""
    began, made = clock.monotonic(), 0
    with _lanes.worker() as may:
        while may and _one():
            made += 1
            if clock.monotonic() - began > PUMP_S:
                queues.nudge_notify()
                break
    return made


def _one() -> bool:
    with _lanes.call(_claim, notices.place) as notice:
        if notice is None:
            return False
        message = _message(notice)
        if message is None:
            notices.ended(notice, "moot")
        else:
            _tell(notice, message)
    return True


def _claim(shut: set[str]) -> Notice | None:
    return notices.claim(shut=shut, lease_s=LEASE_S)


def _tell(notice: Notice, message: Message) -> None:
    with telemetry.context(**_ids(notice)):
        _try(notice, message)


def _ids(notice: Notice) -> dict[str, str]:
    """Of the run whose approval it tells of, for every line inside; a digest is of none."""
    if notice.approval is None:
        return {}
    run_id = str(notice.approval.run_id)
    known = telemetry.ids_of(run_id)
    return {"run_id": run_id, **({"trace_id": known.trace_id} if known else {})}


def _try(notice: Notice, message: Message) -> None:
    if not connection.in_atomic_block:
        connection.close()  # none is held while the world takes its time
    try:
        _send(notice, message)
    except NotTaken as failure:
        _lanes.was(notices.place(notice), slow=True)
        _again(notice, failure)
    else:
        _lanes.was(notices.place(notice), slow=False)
        notices.ended(notice, "sent")
        telemetry.count("notices_sent", channel=notice.channel)


def _again(notice: Notice, failure: NotTaken) -> None:
    wait_s = min(FIRST_WAIT_S * FACTOR ** (notice.tries - 1), MOST_WAIT_S)
    notices.failed(notice, str(failure), wait_s=wait_s, for_good=failure.for_good)
    telemetry.count("notice_tries_failed", channel=notice.channel)
    telemetry.log("notice.not_taken", notice=notice.pk, channel=notice.channel, error=str(failure), tries=notice.tries)


def _message(notice: Notice) -> Message | None:
    """What it says now; None where there is nothing to tell any more."""
    now, site = dbtime.now(), env.read().public_url
    row = notice.approval
    if row is None:
        waiting = Approval.objects.filter(tenant_id=notice.tenant_id, status=Approved.PENDING, expires_at__gt=now)
        number, first = waiting.count(), list(waiting.order_by("expires_at")[: telling.MAX_LISTED])
        return telling.of_digest(notice.tenant_id, first, number, site=site, now=now) if number else None
    waits = row.status == Approved.PENDING and row.expires_at > now
    if notice.kind != notices.EXPIRED and not waits:
        return None
    return telling.of_approval(notice.kind, row, site=site, now=now)


def _send(notice: Notice, message: Message) -> None:
    """Raises NotTaken."""
    if notice.channel == notices.EMAIL:
        _mail(notice.address, message)
    else:
        _chat(notice.address, message)


def link(server: mail.Server, timeout_s: int) -> EmailBackend:
    """A connection to the mail server, not opened yet."""
    return EmailBackend(
        host=server.host, port=server.port, username=server.user, password=server.password, use_tls=server.starttls,
        use_ssl=server.tls, timeout=timeout_s,
    )  # fmt: skip


def _mail(address: str, message: Message) -> None:
    server = mail.server()
    if server is None:
        raise NotTaken("no_mail_server")
    letter = EmailMessage(
        message.subject, message.text, env.read().EMAIL_FROM, [address], connection=link(server, MAIL_TIMEOUT_S),
        headers={"Auto-Submitted": "auto-generated"},
    )  # fmt: skip
    try:
        letter.send()
    except smtplib.SMTPRecipientsRefused as refused:
        codes = [code for code, _ in refused.recipients.values()]
        raise NotTaken(f"smtp_{max(codes)}", for_good=min(codes) >= PERMANENT) from None
    except smtplib.SMTPResponseException as refused:
        raise NotTaken(f"smtp_{refused.smtp_code}") from None
    except (smtplib.SMTPException, OSError):
        raise NotTaken("no_connection") from None
    except ValueError:
        raise NotTaken("address_malformed", for_good=True) from None


def _chat(variable: str, message: Message) -> None:
    """`{"text": …}`, as Slack and what is compatible with it take it."""
    url = env.secret(variable)
    if url is None:
        raise NotTaken("address_missing")
    text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    try:
        answer = outgoing.post(
            http.for_people(), url.get_secret_value(), headers={}, body=json.dumps({"text": text}).encode(),
            timeout_s=env.read().WEBHOOK_TIMEOUT_S,
        )  # fmt: skip
    except http.HttpError as error:
        raise NotTaken("too_slow" if isinstance(error, http.TooSlow) else "no_connection") from None
    if not 200 <= answer.status < 300:
        raise NotTaken(f"status_{answer.status}")
