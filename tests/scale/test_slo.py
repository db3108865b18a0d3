"""`slo` over ten thousand ended runs in under two seconds, its pages too, and little memory for many more."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client

from agentsite import dbtime
from approvals.models import Approval
from runs.management import tenancy
from runs.measures import reading
from runs.models import Run
from tests import approving
from tests.conftest import Say
from tests.scale.test_console_pages import ID, OUTCOME, REASON, STATUS, VENDOR, N, cache
from tests.scale.test_queue_size import SEQUENCE, worked_ms

pytestmark = [pytest.mark.long, pytest.mark.django_db, pytest.mark.timeout(900)]
RUNS, MANY = 10_000, 100_000
MOST_MS, PAGE_MS = 2_000, 2_000
CONTRACT_LIMITS = {"max_cost": {"amount": "1.00", "currency": "USD"}, "max_model_calls": 12}


def ago(column: str, last: int) -> str:
    """A time up to 30 days before the template's, evenly."""
    step = 29.9 * 86_400 / last
    if VENDOR == "postgresql":
        return f"{column} - make_interval(secs => n * {step})"
    return f"strftime('%%Y-%%m-%%d %%H:%%M:%%f000', {column}, '-' || (n * {step}) || ' seconds')"


def fill(last: int) -> None:
    """So many ended runs over 30 days, of ten releases and five models, each with its approval."""
    cache(400_000)
    tenancy.put_profile(approving.tenant().pk, tenancy.DEFAULT_PROFILE)
    template = approving.run(request_id="template", goal="My parcel never came. " * 60)
    now = dbtime.now()
    contract = {**template.contract, "limits": CONTRACT_LIMITS, "scope": {"words": "x" * 1500}}
    Run.objects.filter(pk=template.pk).update(contract=contract, completed_at=now, status="completed")
    Approval.objects.filter(pk=approving.ask(template)).update(id="apr_template", decided_at=now)
    model = '\'{"model":"model-\' || (n %% 5) || \'","policy":"POL-REF-004@v4"}\''
    own = {
        "id": ID, "request_id": f"'req-' || {N}", "status": STATUS, "outcome": OUTCOME, "reason": REASON,
        "trace_id": f"'t' || {N}", "release": "'1.' || (n %% 10)", "versions": model, "approval_id": "NULL",
        "completed_at": f"CASE WHEN n %% 500 = 7 THEN NULL ELSE {ago('completed_at', last)} END",
        "created_at": ago("created_at", last), "active_ms": "3000 + n * 7919 %% 9000", "cost_micros": "n * 31 %% 9000",
        "model_calls": "3 + n %% 7", "input_tokens": "9000 + n %% 1000", "output_tokens": "400 + n %% 300",
    }  # fmt: skip
    copy(Run, "t.request_id = 'template'", last, own)
    copy(Approval, "t.id = 'apr_template'", last, {"id": f"'apr_' || {N}", "run_id": ID})
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    cache(2_000)


def copy(model: type[Run] | type[Approval], where: str, last: int, own: dict[str, str]) -> None:
    names = [str(field.column) for field in model._meta.concrete_fields if not field.generated]
    chosen = ", ".join(own.get(name, f't."{name}"') for name in names)
    listed, table = ", ".join(f'"{name}"' for name in names), model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({listed}) SELECT {chosen} FROM {table} t, ({SEQUENCE[VENDOR]}) numbers "
            f"WHERE {where}",
            [1, last],
        )


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """(milliseconds on the wall, of processor time) of one call."""
    began, worked = time.monotonic(), worked_ms()
    act()
    return 1000 * (time.monotonic() - began), worked_ms() - worked


def test_slo_answers_over_ten_thousand_runs_in_two_seconds(db: None, say: Say) -> None:
    fill(RUNS)
    out = io.StringIO()
    wall, worked = timed(lambda: call_command("slo", "--json", stdout=out))
    told = json.loads(out.getvalue())
    say(f"slo over {RUNS:,} runs on {VENDOR}: {wall:.0f} ms, {worked:.0f} ms of processor time")
    assert told["whole"]["runs"] + told["whole"]["beside"]["cancelled"] == RUNS - RUNS // 500 + 1
    assert (len(told["by"]["release"]), len(told["by"]["model"])) == (11, 6)
    assert worked < MOST_MS


def test_memory_is_bounded_however_many_ended(db: None, say: Say) -> None:
    """By the row, which is what a million of them would take a million times."""
    fill(MANY)
    now = dbtime.now()
    tracemalloc.start()
    found = reading.read(now, days=30)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    a_run = held / len(found.columns)
    say(f"slo of {MANY:,} runs on {VENDOR}: {a_run:.0f} bytes a run, {peak / 2**20:.0f} MiB at most")
    assert a_run < 200
    assert (peak - held) < 16 * 2**20


def test_pages_are_fast_and_bounded(db: None, say: Say) -> None:
    fill(MANY)
    client = Client()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    paths = ("/admin/runs/run/slo/", "/admin/runs/run/tail/")
    found = {path: timed(partial(client.get, path))[1] for path in paths}
    say(f"pages with {MANY:,} runs on {VENDOR}: " + ", ".join(f"{path} {ms:.0f} ms" for path, ms in found.items()))
    assert max(found.values()) < PAGE_MS
