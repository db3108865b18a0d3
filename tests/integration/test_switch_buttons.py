"""The stop switches' buttons on the console's home, in the lists and in the banner: for whoever may flip them alone."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User

from agentsite.tenants import switches
from agentsite.tenants.models import Site, Tenant
from tests import approving
from tests.approving import body, signed_in

pytestmark = pytest.mark.django_db
SITE, ACME, OTHER = (f"/admin/tenants/{what}/switch/" for what in ("site/1", "tenant/t_5Facme_5Fin", "tenant/t_5Fb"))
PAUSES = ("view_run", "pause_tenant")


@pytest.fixture(autouse=True)
def site() -> None:
    Site.objects.get_or_create(id=1)
    for tenant_id in (approving.TENANT, "t_b"):
        approving.tenant(tenant_id)


def buttons(user: User, path: str = "/admin/") -> list[str]:
    return re.findall(r'class="switch(?: resume)?" href="([^"]+)"', body(signed_in(user), path))


def test_home_offers_each_person_the_switches_he_may_flip() -> None:
    assert buttons(approving.person("root", is_superuser=True)) == [SITE, ACME, OTHER]
    assert buttons(approving.person("both", tenants=(approving.TENANT, "t_b"), may=PAUSES)) == [SITE, ACME, OTHER]
    assert buttons(approving.person("one", may=PAUSES)) == [ACME]
    assert buttons(approving.person("lead")) == []


def test_every_button_leads_to_a_page_that_asks_first() -> None:
    one = approving.person("one", may=PAUSES)
    client = signed_in(one)
    for path in (*buttons(one), *buttons(one, "/admin/tenants/tenant/")):
        assert 'name="reason"' in body(client, path) and not Tenant.objects.filter(paused=True).exists()
    assert (client.get(OTHER).status_code, client.get(SITE).status_code) == (404, 404)
    client.post(ACME, {"to": "stopped", "reason": "refunds look wrong"})
    assert Tenant.objects.get(pk=approving.TENANT).paused and not Tenant.objects.get(pk="t_b").paused


def test_banner_offers_to_resume_on_every_page_to_who_may() -> None:
    assert switches.flip(approving.TENANT, stop=True, by="ops_3", reason="refunds look wrong")
    assert switches.flip(None, stop=True, by="root", reason="all of it")
    one, lead = signed_in(approving.person("one", may=(*PAUSES, "view_approval"))), signed_in(approving.person())
    for path in ("/admin/", "/admin/approvals/approval/", "/admin/runs/run/"):
        found = re.findall(r'<a class="resume" href="([^"]+)"', body(one, path))
        assert found == [ACME]
        page = body(lead, path)
        assert "refunds look wrong" in page and "all of it" in page and 'class="resume"' not in page


def test_home_shows_the_stopped_first() -> None:
    switches.flip("t_b", stop=True, by="ops_3", reason="an incident")
    root = approving.person("root", is_superuser=True)
    assert buttons(root) == [SITE, OTHER, ACME]
    assert body(signed_in(root), "/admin/").count(">Resume…</a>") == 2
