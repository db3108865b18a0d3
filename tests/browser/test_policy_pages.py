"""The pages on which policies are loaded and made current, in a real Chromium under the strict policy of the site."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from agentsite import clock
from runs.management import tenancy
from tests import approving
from tests.browser import test_every_page as every
from tests.browser import test_review_page as review
from tools.models import PolicyDocument, PolicyIncident
from tools.policy.documents import load

browser = review.browser
pytestmark = review.pytestmark
MAY = (
    "view_policydocument", "add_policydocument", "change_policydocument", "view_policyincident",
    "change_policyincident", "view_run",
)  # fmt: skip
ADD, INCIDENTS = "/admin/tools/policydocument/add/", "/admin/tools/policyincident/"
BODY = (
    "## Duplicates\n\nA duplicate is refunded, unless disputed.\n\n## Long\n\n" + "longwordwithoutanybreak" * 20 + ".\n"
)


def text(version: int, status: str, title: str = "Refunds") -> str:
    return f"---\nid: POL-REF-004\nversion: {version}\ntitle: {title}\nstatus: {status}\n---\n\n{BODY}"


@pytest.fixture
def owner(transactional_db: None) -> User:
    tenant = approving.tenant()
    tenancy.put_profile(tenant.pk, tenancy.DEFAULT_PROFILE)
    load(tenant.pk, text(4, "current"))
    load(tenant.pk, text(5, "draft", "Refunds " + "verylongtitle" * 15))
    now = clock.now()
    for pinned, closed in ((3, now), (4, None)):
        PolicyIncident.objects.create(
            tenant=tenant, doc_id="POL-REF-004", pinned=pinned, current=5, owner="refunds@acme.example", runs=12,
            last_run_id="0" * 32, first_seen_at=now, last_seen_at=now, closed_at=closed, closed_by="own_9",
        )  # fmt: skip
    return approving.person("own_1", may=MAY)


def paths() -> list[str]:
    page = f"/admin/tools/policydocument/{PolicyDocument.objects.get(status='draft').pk}"
    acts = [f"{page}/status/?to=current", f"{page}/status/?to=superseded"]
    return [ADD, *acts, f"{page}/change/", INCIDENTS, f"{INCIDENTS}{PolicyIncident.objects.latest('pk').pk}/change/"]


def test_policy_pages_fit_every_window_in_light_and_dark_and_read_well(
    browser: Browser, live_server: LiveServer, owner: User
) -> None:
    desk = review.Desk(browser, live_server, owner, viewport={"width": 1440, "height": 900}, color_scheme="light")
    every.still(desk.page)
    ours = (ADD, INCIDENTS)
    found = {path: every.look(desk, path, axe=path in ours or "to=current" in path) for path in paths()}
    assert [f"{path}: {fault}" for path, faults in found.items() for fault in faults] == []


def test_policy_is_loaded_made_current_and_its_incident_closed_with_a_browser(
    browser: Browser, live_server: LiveServer, owner: User, tmp_path: Path
) -> None:
    desk = review.Desk(browser, live_server, owner)
    page = desk.open(ADD)
    page.select_option("#tenant", "t_acme_in")
    page.fill("#text", text(6, "draft").replace("version: 6", "version: six"))
    page.click("button:has-text('Load')")
    assert page.locator("#text-error").inner_text() == "version: a positive integer"
    assert page.locator("#text").input_value().startswith("---\nid: POL-REF-004"), "what was written is not lost"
    desk.errors.clear()  # the browser notes the 400 itself
    page.fill("#text", "")
    (tmp_path / "v6.md").write_text(text(6, "draft"))
    page.set_input_files("#file", str(tmp_path / "v6.md"))
    page.dblclick("button:has-text('Load')")
    page.wait_for_selector(".messagelist .success")
    page.click(".object-tools a:has-text('Make current')")
    assert "Its runs abstain until a profile pins version 6." in page.locator(".card").inner_text()
    page.fill("#reason", "In force from today.")
    page.dblclick("button:has-text('Make current')")
    page.wait_for_selector(".messagelist .success")
    assert dict(PolicyDocument.objects.values_list("version", "status")) == {4: "superseded", 5: "draft", 6: "current"}
    page = desk.open(f"{INCIDENTS}?state=open")
    page.check("#result_list input.action-select")
    page.select_option("select[name=action]", "close")
    page.click("button[name=index]")
    page.wait_for_selector(".messagelist .success")
    assert not PolicyIncident.objects.filter(closed_at=None).exists()
    assert desk.errors == []
