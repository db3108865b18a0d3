"""The console's lists and its read-only pages: what staff find there, and what they cannot do there."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from agentsite.tenants.models import ServiceToken, StaffTenant
from approvals import queue
from approvals.models import Approval
from tests import approving
from tests.approving import body, confirmed, signed_in
from tools.models import PolicyDocument

pytestmark = pytest.mark.django_db
LIST = "/admin/approvals/approval/"


@pytest.fixture
def asked() -> Approval:
    return Approval.objects.get(pk=approving.ask(approving.run()))


@pytest.fixture
def lead(db: None) -> User:
    return approving.person()


# --- the list ----------------------------------------------------------------------------------------------


def orders_listed(page: str) -> list[str]:
    return re.findall(r'class="field-order"><a[^>]*>([^<]+)</a>', page)


@pytest.mark.parametrize("by", ["order_id", "payment_id", "customer_id", "request_id", "run_id"])
def test_the_queue_is_searched_by_every_id(lead: User, by: str) -> None:
    with transaction.atomic():
        approving.ask(approving.run(request_id="req-other"), order_id="77", payment_id="pay_1", customer_id="cust_1")
        approving.ask(approving.run())
    wanted = Approval.objects.get(order_id="8472")
    client = signed_in(lead)
    assert orders_listed(body(client, f"{LIST}?q={getattr(wanted, by)}")) == ["8472"]
    assert orders_listed(body(client, f"{LIST}?q=nothing")) == []


# --- the other admins --------------------------------------------------------------------------------------


def test_a_runs_page_tells_the_whole_story(asked: Approval, lead: User) -> None:
    queue.decide(asked.pk, lead, "approve", asked.action_hash, "All fits")
    confirmed(asked)
    page = body(signed_in(lead), f"/admin/runs/run/{asked.run_id}/change/")
    for text in ("Completed", "rf_3301", "t_acme_in/req-8472:issue_refund:pay_9002", "lead_17", "All fits", "Done.",
                 asked.pk, approving.GOAL, "tool.observed"):  # fmt: skip
        assert text in page, text


def test_policies_are_read_only_and_of_ones_tenants() -> None:
    for tenant_id in (approving.TENANT, "t_other"):
        PolicyDocument.objects.create(
            tenant=approving.tenant(tenant_id), doc_id=f"POL-{tenant_id}", version=4, title="Refunds",
            status="current", body="# Duplicate capture", content_hash="sha256:0",
        )  # fmt: skip
    client = signed_in(approving.person(may=("view_policydocument",)))
    page = body(client, "/admin/tools/policydocument/")
    assert "POL-t_acme_in" in page and "POL-t_other" not in page
    mine = PolicyDocument.objects.get(tenant_id=approving.TENANT)
    assert "# Duplicate capture" in body(client, f"/admin/tools/policydocument/{mine.pk}/change/")
    assert client.post(f"/admin/tools/policydocument/{mine.pk}/change/", {"status": "draft"}).status_code == 403
    mine.refresh_from_db()
    assert mine.status == "current"


def test_tokens_are_revoked_by_name_and_never_shown() -> None:
    owner = approving.person("service")
    row, secret = ServiceToken.objects.create(user=owner, tenant_id=approving.TENANT, name="shop", scopes="runs:read")
    client = signed_in(approving.person("op", may=("view_servicetoken", "delete_servicetoken")))
    path = "/admin/tenants/servicetoken/"
    page = body(client, path)
    assert "shop" in page and secret not in page
    assert row.token_key not in page
    assert client.get(f"{path}add/").status_code == 403
    assert client.get(f"{path}{row.digest}/delete/").status_code == 404
    done = client.post(path, {"action": "revoke", "_selected_action": [row.digest]}, follow=True)
    assert "Revoked: shop (t_acme_in: runs:read)" in done.content.decode()
    assert not ServiceToken.objects.exists()


def test_a_viewer_of_tokens_revokes_none() -> None:
    owner = approving.person("service")
    row, _ = ServiceToken.objects.create(user=owner, tenant_id=approving.TENANT, name="shop", scopes="runs:read")
    client = signed_in(approving.person("viewer", may=("view_servicetoken",)))
    client.post("/admin/tenants/servicetoken/", {"action": "revoke", "_selected_action": [row.digest]})
    assert ServiceToken.objects.count() == 1


def test_only_a_superuser_assigns_staff_to_tenants(asked: Approval) -> None:
    stranger = approving.person("stranger", tenants=("t_other",), may=("add_stafftenant", "view_stafftenant"))
    form = {"user": str(stranger.pk), "tenant": approving.TENANT}
    path = "/admin/tenants/stafftenant/add/"
    assert signed_in(stranger).post(path, form).status_code == 403
    assert not StaffTenant.objects.filter(user=stranger, tenant_id=approving.TENANT).exists()
    root = signed_in(approving.person("root", is_superuser=True))
    assert root.post(path, form).status_code == 302
    assert StaffTenant.objects.filter(user=stranger, tenant_id=approving.TENANT).exists()
