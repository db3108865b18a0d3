from __future__ import annotations
import time, uuid
from typing import Any
import pytest
from django.db import connection, DatabaseError, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

pytestmark = pytest.mark.django_db(transaction=True)
BEFORE = [("approvals", "0001_initial"), ("runs", "0006_model_turns"), ("tenants", "0003_fence_demanded")]
N = 3000

def test_filled() -> None:
    ex = MigrationExecutor(connection)
    after = ex.loader.graph.leaf_nodes()
    ex.migrate(BEFORE)
    try:
        apps = MigrationExecutor(connection).loader.project_state(BEFORE).apps
        now = timezone.now()
        T, R, A, D, U = (apps.get_model(*m.split(".")) for m in ("tenants.Tenant", "runs.Run", "approvals.Approval", "approvals.Decision", "auth.User"))
        t = T.objects.create(id="t_old"); u = U.objects.create(username="old")
        runs = [R(id=uuid.uuid4(), tenant=t, request_id=f"r{i}", body_hash="h", trace_id="t", agent="refunds", customer_id="c", contract={}, release="0", created_by="user:1", status="completed", status_since=now, created_at=now, updated_at=now, completed_at=now) for i in range(N)]
        R.objects.bulk_create(runs)
        apr = [A(id=f"apr_{i}", tenant_id="t_old", run_id=r.id, request_id=r.request_id, call_id="c", tool="issue_refund", args={}, action_hash="h", policy="p", rule="r", checks=[], facts={}, evidence=[], customer_id="c", order_id="o", payment_id="p", amount_minor=1, currency="INR", created_by="x", requested_at=now, expires_at=now, status="pending", messages_shown=[]) for i, r in enumerate(runs)]
        A.objects.bulk_create(apr)
        D.objects.bulk_create([D(approval=a, user=u, by="old", decision="approve", action_hash="h", at=now) for a in apr])
        began = time.monotonic()
    finally:
        ex = MigrationExecutor(connection)
        ex.migrate(after)
    print("took", time.monotonic() - began)
    from approvals.models import Approval, Decision
    from runs.models import Run
    a = Approval.objects.get(pk="apr_1")
    assert (a.risk, a.attestation, a.reason_code, a.notices_until) == (0, "", "", None)
    assert Decision.objects.count() == N == Run.objects.count()
    for act in (lambda: Decision.objects.filter(pk=1).delete(), lambda: Decision.objects.update(by="x"), lambda: Decision.objects.update(reason="words")):
        with pytest.raises(DatabaseError), transaction.atomic():
            act()
    Decision.objects.update(reason="")
    with connection.cursor() as c:  # as an old process inserts
        c.execute("INSERT INTO approvals_decision (approval_id, user_id, \"by\", decision, counted, refusal, reason, action_hash, screen_hash, address, at) VALUES ('apr_1', NULL, 'x', 'approve', %s, '', 'r', 'h', '', '', %s)", [False, now])
    d = Decision.objects.order_by("-pk").first()
    assert (d.reason_code, d.attested) == ("", "")
    with pytest.raises(DatabaseError), transaction.atomic():
        with connection.cursor() as c:
            c.execute("UPDATE approvals_approval SET status='pending', run_id=(SELECT run_id FROM approvals_approval WHERE id='apr_2') WHERE id='apr_1'")
