"""A scrape of /metrics with a million events and the runs they belong to: under 200 ms, on both databases."""

from __future__ import annotations

import statistics

import pytest
from django.db import connection
from django.test import Client

from approvals.models import Approval
from runs.models import Event, Run, Webhook, Write
from tests import approving
from tests.conftest import Say
from tests.plans import WALKED, looks_at_all, statements_of
from tests.scale.test_console_pages import ID, VENDOR, N, cache
from tests.scale.test_queue_size import RUN, SEQUENCE, worked_ms

pytestmark = [pytest.mark.long, pytest.mark.django_db, pytest.mark.timeout(1800)]
RUNS, EVENTS_EACH, TIMES, MOST_MS = 100_000, 10, 9, 200
FILLED = {"runs_run", "runs_event", "runs_write", "runs_webhook", "approvals_approval"}
BUSY_S = 1.44
"""A run ends every so often: 2,500 an hour, 60,000 a day."""
LIVES = "n %% 20 = 7"
STATUS = f"CASE WHEN {LIVES} THEN 'awaiting_approval' WHEN n %% 200 = 1 THEN 'failed' WHEN n %% 10 = 2 THEN 'escalated' ELSE 'completed' END"  # noqa: E501
REASON = "CASE WHEN n %% 10 = 2 THEN 'budget_exhausted' ELSE NULL END"


def ago(column: str) -> str:
    """A time before the template's, the later the smaller the number."""
    if VENDOR == "postgresql":
        return f"{column} - make_interval(secs => n * {BUSY_S})"
    return f"strftime('%%Y-%%m-%%d %%H:%%M:%%f000', {column}, '-' || (n * {BUSY_S}) || ' seconds')"


def copied(model: type[Run] | type[Approval] | type[Write] | type[Webhook], where: str, **values: str) -> None:
    """RUNS copies of one row, each numbered `n`."""
    told = [str(field.column) for field in model._meta.concrete_fields if not field.generated]
    names = [name for name in told if values.get(name) != ""]
    chosen = ", ".join(values.get(name, f't."{name}"') for name in names)
    listed, table = ", ".join(f'"{name}"' for name in names), model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({listed}) SELECT {chosen} FROM {table} t, ({SEQUENCE[VENDOR]}) numbers "
            f"WHERE {where}",
            [1, RUNS],
        )


def with_events() -> None:
    """EVENTS_EACH events for every run, one of them the gate's."""
    names = [str(field.column) for field in Event._meta.concrete_fields if field.column != "id"]
    changed = {
        "run_id": "r.id", "seq": "numbers.n",
        "type": "CASE WHEN numbers.n = 5 THEN 'gate.decided' ELSE 'tool.observed' END",
    }  # fmt: skip
    chosen = ", ".join(changed.get(name, f't."{name}"') for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO runs_event ({listed}) SELECT {chosen} FROM runs_event t, runs_run r, "
            f"({SEQUENCE[VENDOR]}) numbers WHERE t.seq = 77 AND r.request_id <> 'template'",
            [1, EVENTS_EACH],
        )


@pytest.fixture
def crowd(db: None) -> None:
    cache(400_000)
    if VENDOR == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 0")  # filling takes longer than any statement of ours may
    template = approving.run(request_id="template", goal="My parcel never came. " * 60)
    Run.objects.filter(pk=template.pk).update(
        versions={"model": "gpt-x", "prompt": "refunds@2"}, completed_at=template.updated_at
    )
    approving.event(
        template, 77, "gate.decided", {"decision": "deny", "rule": "amount_above_maximum", "note": "x" * 200}
    )
    approval_id = approving.ask(template)
    Approval.objects.filter(pk=approval_id).update(id="apr_template")
    approval = Approval.objects.get(pk="apr_template")
    approving.confirmed(approval)
    Webhook.objects.create(
        id="wh_template", run=template, tenant_id=template.tenant_id, type="run.completed", seq=1, body="{}" * 200,
        url="https://shop.example/hook", created_at=template.updated_at,
    )  # fmt: skip
    copied(
        Run, "t.request_id = 'template'", id=ID, request_id=f"'req-' || {N}", status=STATUS, reason=REASON,
        outcome=f"CASE WHEN {LIVES} THEN NULL WHEN n %% 10 = 2 THEN 'handed_to_staff' ELSE 'refunded' END",
        created_at=ago("created_at"), customer_id=f"'cust-' || {N}", trace_id=f"'t' || {N}", active_ms="n %% 30000",
        completed_at=f"CASE WHEN {LIVES} THEN NULL ELSE {ago('completed_at')} END",
        due_at=f"CASE WHEN {LIVES} THEN t.created_at ELSE NULL END",
    )  # fmt: skip
    copied(
        Approval, "t.id = 'apr_template'", id=f"'apr_' || {N}", run_id=RUN[VENDOR], requested_at=ago("requested_at"),
        status="CASE WHEN n %% 20 = 0 THEN 'pending' WHEN n %% 7 = 0 THEN 'expired' ELSE 'consumed' END",
        expires_at=ago("expires_at"), decided_at=ago("expires_at"),
    )  # fmt: skip
    copied(
        Write, "t.order_id = '8472'", key=f"'key-' || {N}", run_id=ID, order_id=f"'order-' || {N}",
        approval_id=f"'a' || {N}", intent_at=ago("intent_at"),
        state="CASE WHEN n %% 1000 = 0 THEN 'unknown' ELSE 'confirmed' END",
    )  # fmt: skip
    copied(
        Webhook, "t.id = 'wh_template'", id=f"'wh_' || {N}", run_id=ID, created_at=ago("created_at"),
        state="CASE WHEN n %% 50 = 0 THEN 'due' WHEN n %% 51 = 0 THEN 'dead' ELSE 'delivered' END",
    )  # fmt: skip
    with_events()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    cache(2_000)


def test_scrape_is_flat_with_a_million_events(crowd: None, say: Say) -> None:
    assert (Run.objects.count(), Event.objects.count() >= RUNS * EVENTS_EACH) == (RUNS + 1, True)
    took = list[float]()
    for _ in range(TIMES + 1):
        began = worked_ms()
        answer = Client().get("/metrics")
        took.append(worked_ms() - began)
    parts = {
        line.split('"')[1]: float(line.rpartition(" ")[2]) * 1000
        for line in answer.content.decode().splitlines() if line.startswith("agentsite_scrape_seconds{")
    }  # fmt: skip
    dear = ", ".join(f"{name} {ms:.0f}" for name, ms in sorted(parts.items(), key=lambda one: -one[1])[:6])
    say(f"scrape on {VENDOR} with {RUNS:,} runs and {RUNS * EVENTS_EACH:,} events, in ms of processor time: "
        f"first {took[0]:.0f}, median {statistics.median(took[1:]):.0f}, most {max(took[1:]):.0f}; "
        f"dearest parts by the clock: {dear}")  # fmt: skip
    assert b'agentsite_scrape_errors{part="live"} 0.0' in answer.content
    assert statistics.median(took[1:]) < MOST_MS
    assert [
        found for found in statements_of(lambda: Client().get("/metrics")) if looks_at_all(found, WALKED, FILLED)
    ] == []
