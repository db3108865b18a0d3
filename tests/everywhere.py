"""Every page of the console, found from its URL conf, over rows of every kind that hold the worst a text can hold.

A page that somebody adds and that is not filled in here fails the sweeps by its pattern: tell its values in `VALUES`.
"""

from __future__ import annotations

import itertools
import re
import secrets
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.urls import URLPattern, URLResolver, get_resolver

from agentsite import dbtime
from agentsite.tenants import switches
from agentsite.tenants.models import AgentProfile, Site, StaffTenant
from approvals.models import Approval, Decision, Notice, Snooze
from runs import evaluations
from runs.admin.acts import ACTS
from runs.evaluation import figures
from runs.management import staff, tenancy
from runs.models import (
    Attachment,
    Attempt,
    Delivery,
    Draft,
    Event,
    Feedback,
    Observation,
    Run,
    Turn,
    Webhook,
    Write,
)
from tests import approving
from tests.evaluation.cases import case, result
from tools.models import Breaker, PolicyDocument, PolicyIncident, PolicyPassage

Json = dict[str, Any]
INVISIBLE = "\u202e\u200b\u2066\u2028"
EVIL = f"<script>window.ran=1</script><img src=x onerror=window.ran=2>{INVISIBLE}"
FORMULA = "=cmd|' /C calc'!A0"
HOSTILE = f"{FORMULA} {EVIL} \"'><b>&amp; {'longwordwithoutanybreak' * 12}"
PLAIN = '<script>window.ran=1</script> I checked "both" payments & the order.'
SHORT = f"{EVIL}"[:110]
PARAMETER = re.compile(r"<(?:(\w+):)?(\w+)>")
VALUES: dict[str, list[str]] = {
    "runs_run_act slug": sorted(ACTS), "approvals_approval_bulk act": ["reject", "assign"],
    "approvals_approval_evidence obs_id": ["obs_1", "obs_2"], "runs_run_prompt number": ["1", "2"],
    "runs_run_objective tenant_id": ["t_acme_in"], "runs_shadow_tenant tenant_id": ["t_acme_in"],
}  # fmt: skip


# --- rows of every kind -------------------------------------------------------------------------------------------


def stage() -> User:
    """Fills the database; the superuser who may open everything."""
    lead = approving.person(is_superuser=True)
    Site.objects.get_or_create(id=1)
    tenant = approving.tenant()
    staff.put_groups()
    tenancy.put_profile(tenant.pk, tenancy.DEFAULT_PROFILE)
    AgentProfile.objects.create(
        tenant=tenant, agent="refunds", revision=99, document={**tenancy.DEFAULT_PROFILE, "queue_owner": HOSTILE}
    )
    waiting, ended = _run("req-1"), _run("req-2")
    _approvals(waiting, lead)
    for run in (waiting, ended):
        _inside(run)
        _outside(run)
    _ended(ended)
    _beside(tenant.pk, lead)
    _measured()
    switches.flip(tenant.pk, stop=True, by="ops_3", reason=HOSTILE)
    return lead


def _run(request_id: str) -> Run:
    run = approving.run(request_id=request_id, goal=HOSTILE)
    run.orders.create(tenant_id=run.tenant_id, order_id=SHORT)
    columns = {"customer_id": SHORT, "reply": HOSTILE, "release": SHORT[:60], "created_by": SHORT}
    contract = {"goal": HOSTILE, "actor": {"customer_id": SHORT, "channel": SHORT[:60]}, "order_ids": [SHORT]}
    Run.objects.filter(pk=run.pk).update(contract=contract, **columns)
    return Run.objects.get(pk=run.pk)


def _approvals(run: Run, lead: User) -> None:
    """One that waits, and one of every other end."""
    texts = {
        "evidence": [{**item, "fact": HOSTILE, "doc": HOSTILE, "section": HOSTILE} for item in approving.evidence()],
        "args": {**approving.question(run).args, "reason": HOSTILE}, "customer_id": SHORT, "order_id": SHORT,
        "checks": [*approving.CHECKS, {"name": "sensitive_words", "ok": True, "inputs": {"words": [HOSTILE]}}],
    }  # fmt: skip
    now = dbtime.now()
    ended = [(status, now) for status in ("rejected", "expired", "void", "consumed")]
    for number, (status, at) in enumerate(ended, start=1):
        approval_id = approving.ask(run, **texts)
        done = {"decided_at": at, "decided_by": HOSTILE[:200], "reason": HOSTILE, "ended_at": at}
        Approval.objects.filter(pk=approval_id).update(status=status, void_reason=SHORT[:80], **done)
        Decision.objects.create(
            approval_id=approval_id, user=lead, by=HOSTILE[:200], decision="reject", reason=HOSTILE, action_hash=SHORT,
            address=SHORT[:60], at=at, counted=number % 2 == 0, refusal="" if number % 2 == 0 else "action-changed",
        )  # fmt: skip
    approval_id = approving.ask(run, **texts)
    said = [{"text": HOSTILE, "at": "2026-11-29T12:00:00.000Z"}]
    Approval.objects.filter(pk=approval_id).update(
        messages_shown=said, attestation=PLAIN, assigned_to=lead, claimed_by=lead,
        claimed_until=now + timedelta(hours=1),
    )  # fmt: skip
    Snooze.objects.create(approval_id=approval_id, user=approving.person("other"), until=now + timedelta(hours=1))
    Notice.objects.create(
        approval_id=approval_id, tenant_id=run.tenant_id, kind="asked", channel="email", address=HOSTILE[:300],
        state="failed", error=SHORT[:80], created_at=now,
    )  # fmt: skip


def _inside(run: Run) -> None:
    now = dbtime.now()
    approving.wrote(run, HOSTILE, seq=60)
    calls = [{"call_id": "m1.1", "tool": SHORT[:60], "args": {HOSTILE[:60]: HOSTILE}, "evidence": [SHORT]}]
    told: list[Json] = [{"proposals": calls}, {"final": {"text": HOSTILE, "evidence": []}}]
    for number, extra in enumerate(told, start=1):
        Turn.objects.create(
            run=run, number=number, span=f"s{number}", route=SHORT, answered_model=SHORT, prompt_version="refunds@3",
            prompt_hash="sha256:0", tools_version="t", raw=HOSTILE, started_at=now, took_ms=812, cost_micros=1234,
            error={"error": SHORT, "detail": HOSTILE} if number == 2 else None, **extra,
        )  # fmt: skip
    kinds = ("result", "error", "denial", "decision", "message", "notice")
    for position, kind in enumerate(kinds, start=1):
        content = {"text": HOSTILE, "note": HOSTILE, "error": HOSTILE, "rule": SHORT, "reason": HOSTILE}
        Observation.objects.create(
            run=run, obs_id=f"obs_{position}", position=position, call_id=f"c{position}", span="s1", kind=kind,
            source="get_order" if kind == "result" else SHORT[:60], args={"order_id": HOSTILE}, content=content,
            content_hash="sha256:0", meta={"doc": HOSTILE}, fetched_at=now,
        )  # fmt: skip
    Draft.objects.create(run=run, route=SHORT, thinking=HOSTILE, text=HOSTILE, at=now + timedelta(days=1))
    Feedback.objects.create(run=run, rating="down", text=HOSTILE, at=now)
    Attachment.objects.create(
        run=run, tenant_id=run.tenant_id, position=0, name=HOSTILE[:255], media_type="text/html", sha256="0" * 64,
        size=6, content=b"<b>x</b>", at=now,
    )  # fmt: skip
    last = Event.objects.filter(run=run).count()
    for seq, kind in enumerate(("message.received", "model.replied", SHORT[:32], "write.looked"), start=last + 1):
        Event.objects.create(
            run=run, seq=seq, type=kind, at=now, version=6, meta={"note": HOSTILE, SHORT: HOSTILE, "key": "k"},
            payload={"text": HOSTILE, "refunds": [{"refund_id": HOSTILE, "state": HOSTILE}]}, digest="", prev="",
            mac="", key_id="k1",
        )  # fmt: skip
    Run.objects.filter(pk=run.pk).update(last_seq=last + 4)


def _outside(run: Run) -> None:
    now = dbtime.now()
    row = Webhook.objects.create(
        id=f"msg_{secrets.token_hex(6)}", run=run, tenant_id=run.tenant_id, type="run.escalated", seq=7,
        url=f"https://client.example/{'x' * 300}", body=HOSTILE, state="dead", tries=12, created_at=now, ended_at=now,
    )  # fmt: skip
    Delivery.objects.create(webhook=row, number=1, at=now, status=500, error=SHORT[:80])


def _ended(run: Run) -> None:
    """A run whose refund nobody knows about: a person's, with a write of every state beside it."""
    now = dbtime.now()
    for number, state in enumerate(("unknown", "confirmed", "failed", "refused", "not_sent")):
        write = Write.objects.create(
            key=f"{run.tenant_id}/req-2:issue_refund:pay_{number}", run=run, tenant_id=run.tenant_id, order_id=SHORT,
            payment_id=f"{SHORT[:100]}{number}", tool="issue_refund", args={"order_id": SHORT, "reason": HOSTILE},
            action_hash="sha256:0", decision_id="d", body='{"order_id":"8472"}', origin="https://commerce.example",
            amount_minor=200_000, currency="INR", state=state, refund_id=SHORT, refund_state=SHORT[:60], call_id="c3",
            customer_id=SHORT, intent_at=now, result={"refund_id": HOSTILE, "amount": approving.inr("2000.00")},
        )  # fmt: skip
        Attempt.objects.create(write=write, number=1, prepared_at=now, sent_at=now, gives_up_at=now, answer=SHORT[:60])
    Run.objects.filter(pk=run.pk).update(
        status="escalated", reason="outcome_unknown", outcome="handed_to_staff", waiting_for=None, completed_at=now,
        verification={"check": HOSTILE, "passed": False, "expected": {"state": HOSTILE}, "found": {"state": HOSTILE}},
    )  # fmt: skip


def _beside(tenant_id: str, lead: User) -> None:
    now = dbtime.now()
    document = PolicyDocument.objects.create(
        tenant_id=tenant_id, doc_id=SHORT[:60], version=4, title=HOSTILE[:300], status="current", body=HOSTILE,
        content_hash="sha256:0",
    )  # fmt: skip
    PolicyPassage.objects.create(document=document, section=HOSTILE[:300], position=1, text=HOSTILE, content_hash="x")
    PolicyIncident.objects.create(
        tenant_id=tenant_id, doc_id=SHORT[:60], pinned=4, owner=HOSTILE[:250], last_run_id=str(uuid.uuid4()),
        first_seen_at=now, last_seen_at=now,
    )  # fmt: skip
    Breaker.objects.create(dependency=SHORT[:60], account=HOSTILE[:400], failures=5, updated_at=now)
    staff.make_token(tenant_id=tenant_id, name="shop", scopes=["runs:read"])
    LogEntry.objects.create(
        user=lead, content_type=ContentType.objects.get_for_model(Run), object_id=str(uuid.uuid4()),
        object_repr=HOSTILE[:200], action_flag=CHANGE, change_message=HOSTILE,
    )  # fmt: skip
    StaffTenant.objects.get_or_create(user=lead, tenant_id=tenant_id)


def _measured() -> None:
    """An evaluation of a route whose every text is hostile."""
    bad = case(SHORT[:80], "forbidden", title=HOSTILE, said=HOSTILE, forbidden=[HOSTILE], tags=[SHORT])
    counted = figures.figures([bad])
    evaluations.store(result(route=SHORT, answered=(SHORT,), cases=[bad], figures=counted), by=HOSTILE[:200])


# --- every address -----------------------------------------------------------------------------------------------


def patterns(under: str = "admin/") -> Iterator[tuple[str, str]]:
    """(route, name) of every pattern of the site below a path."""
    yield from ((route, name) for route, name in _walk(get_resolver().url_patterns, "") if route.startswith(under))


def _walk(found: list[Any], before: str) -> Iterator[tuple[str, str]]:
    for one in found:
        if isinstance(one, URLResolver):
            yield from _walk(one.url_patterns, before + str(one.pattern))
        elif isinstance(one, URLPattern):
            yield before + str(one.pattern), one.name or ""


def addresses() -> list[tuple[str, str]]:
    """(name, address) of every page of the console, its parameters filled by rows. Raises KeyError for a new kind."""
    found = {f"/{path}": name for route, name in patterns() for path in _filled(route, name)}
    return [(name, path) for path, name in found.items()]


def _filled(route: str, name: str) -> Iterator[str]:
    if route.endswith("(?P<url>.*)$"):
        return  # what is nowhere else: a 404
    if "(?P<app_label>" in route:
        for app in sorted({model._meta.app_label for model in admin.site._registry}):
            yield f"admin/{app}/"
        return
    names = [parameter[1] for parameter in PARAMETER.findall(route)]
    fixed = re.split(r"<[^>]+>", route)
    for values in itertools.product(*(_values(name, parameter, route) for parameter in names)):
        yield "".join(part for pair in itertools.zip_longest(fixed, values, fillvalue="") for part in pair)


def _values(name: str, parameter: str, route: str) -> list[str]:
    if f"{name} {parameter}" in VALUES:
        return VALUES[f"{name} {parameter}"]
    if parameter == "file_id":
        return [str(pk) for pk in Attachment.objects.values_list("pk", flat=True)[:1]]
    if parameter == "content_type_id":
        return [str(ContentType.objects.get_for_model(Run).pk)]
    if name == "view_on_site":
        return [str(Run.objects.values_list("pk", flat=True)[0])]
    if parameter in ("object_id", "id"):
        return [str(quote(row.pk)) for row in _rows(route)]
    raise KeyError(f"{route} ({name}) has a parameter {parameter!r} that no sweep can fill: tell tests/everywhere.py")


def _rows(route: str) -> list[Model]:
    """A few rows of the kind that a page is of: of approvals and writes one of each state."""
    _, app, kind, *_ = route.split("/")
    model = next(m for m in admin.site._registry if (m._meta.app_label, m._meta.model_name) == (app, kind))
    rows: list[Model] = list(model._default_manager.all()[:40])
    if kind in ("approval", "write", "run"):
        by_state = {getattr(r, "status", None) or getattr(r, "state", None): r for r in rows}
        return list(by_state.values()) if route.endswith("/change/") else list(by_state.values())[:1]
    return rows[:1] if not route.endswith("/change/") else rows[:2]
