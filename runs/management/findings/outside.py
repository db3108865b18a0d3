"""Whether people and programs outside are told: mail, chat, webhooks, their keys, what failed. Part of `doctor`."""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit

from django.db.models import Min

from agentsite import dbtime, env, mail
from agentsite.tenants.models import Tenant
from agentsite.text import visible
from approvals import labels, notices, notify
from approvals.models import Notice
from runs import signing
from runs.management.findings.finding import Finding, fail, ok, warn
from runs.models import Webhook

LATE_S = 3600.0
LATELY = timedelta(days=7)
MAX_NAMED = 5
CONNECT_S = 3
LOOPBACK = ("127.0.0.1", "localhost", "::1")
AGENT = "refunds"


def examine() -> Iterator[Finding]:
    """Findings on what is configured for telling, what could not be told lately, and what waits to be."""
    yield _links()
    yield _mail()
    yield _hosts()
    tenants = list(Tenant.objects.order_by("id").values_list("id", flat=True))
    yield _told(tenants)
    yield _keys(tenants)
    yield _notices()
    yield _webhooks()


def _links() -> Finding:
    url = env.read().public_url
    host = urlsplit(url).hostname or ""
    if host in LOOPBACK and not env.read().embedded:
        return warn("links", f"links to people begin with {url}, which only this host knows: set PUBLIC_URL")
    return ok("links", f"begin with {url}")


def _mail() -> Finding:
    server = mail.server()
    if server is None:
        return warn("mail", "EMAIL_URL is not set: nobody is told of approvals by mail")
    how = "TLS" if server.tls else "STARTTLS" if server.starttls else "no encryption"
    where = f"{server.host}:{server.port} with {how}"
    link = notify.link(server, CONNECT_S)
    try:
        link.open()
    except (smtplib.SMTPException, OSError) as error:
        return fail("mail", f"{where} does not take us ({type(error).__name__}): notices by mail wait, then fail")
    finally:
        link.close()
    return ok("mail", f"{where} takes letters from {env.read().EMAIL_FROM}")


def _hosts() -> Finding:
    named = env.read().WEBHOOK_PRIVATE_HOSTS
    if named:
        return warn("webhook hosts", f"may be private or plain http: {', '.join(map(visible, named[:MAX_NAMED]))}")
    return ok("webhook hosts", "public https addresses alone")


def _told(tenants: list[str]) -> Finding:
    nobody = [name for name in tenants if not notices.recipients(name)]
    if nobody:
        named = ", ".join(nobody[:MAX_NAMED])
        return warn("notices to staff", f"nobody is told of approvals of {named}: the console alone shows them")
    unset = {address for name in tenants for channel, address in notices.recipients(name)
             if channel == notices.CHAT and env.secret(address) is None}  # fmt: skip
    if unset:
        return fail("notices to staff", f"the chat's address is missing: set {', '.join(sorted(unset)[:MAX_NAMED])}")
    return ok("notices to staff", f"somebody is told at each of {len(tenants)} tenants")


def _keys(tenants: list[str]) -> Finding:
    faults = []
    for name in tenants:
        try:
            signing.keys(name, AGENT)
        except signing.NoKey as missing:
            faults.append(f"{name} ({missing})")
    if faults:
        return fail("webhook keys", f"webhooks cannot be signed for {', '.join(faults[:MAX_NAMED])}")
    return ok("webhook keys", "every tenant has one")


def _notices() -> Finding:
    failed = Notice.objects.filter(state="failed", created_at__gt=dbtime.now() - LATELY).count()
    if failed:
        return warn("notices", f"{failed} could not be sent in the last week: see Notices in the console")
    return ok("notices", "none failed in the last week")


def _webhooks() -> Finding:
    now = dbtime.now()
    dead = Webhook.objects.filter(state="dead", created_at__gt=now - LATELY).count()
    oldest = Webhook.objects.filter(state="due").aggregate(at=Min("created_at"))["at"]
    age_s = (now - oldest).total_seconds() if oldest else 0.0
    waits = f"; the oldest that is due has waited {labels.duration(age_s)}" if oldest else ""
    if dead or age_s > LATE_S:
        return warn("webhooks", f"{dead} given up in the last week{waits}: see Webhooks in the console")
    return ok("webhooks", f"none given up in the last week{waits}")
