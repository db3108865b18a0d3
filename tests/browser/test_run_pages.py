"""The pages of runs and the first page in a real Chromium: narrow, dark, followed live, without a console error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page
from pytest_django.live_server_helper import LiveServer

from agentsite import dbtime, env
from runs.models import Draft, Feedback, Run
from tests import approving
from tests.browser import test_review_page as review
from tests.operating import OPERATES
from tests.system.business import Business

if TYPE_CHECKING:
    from tests.world import World

browser = review.browser
pytestmark = review.pytestmark
MAY = (*OPERATES, "decide_approval", "view_webhook")
GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def business_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Business]:
    with Business(tmp_path_factory.mktemp("sb") / "sandbox.sqlite3") as system:
        yield system


@pytest.fixture
def world(
    transactional_db: None, business_system: Business, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    from tests.world import World

    patch = pytest.MonkeyPatch()
    try:
        yield World(business_system, tmp_path_factory.mktemp("w"), patch)
    finally:
        patch.undo()
        env.read.cache_clear()


def grave(page: Page) -> list[str]:
    """What axe finds serious or worse on a page."""
    review.settle(page)
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in found if v["impact"] in GRAVE]


def test_pages_of_runs_fit_a_phone_and_the_dark_and_everybody(
    browser: Browser, live_server: LiveServer, world: World
) -> None:
    run = world.start()
    world.approve(run)
    run = world.resume(run)
    Feedback.objects.create(run=run, rating="down", text="\u202eslow", at=dbtime.now())
    world.start("req-9001")
    user = approving.person("chief", may=MAY)
    paths = [
        "/admin/", f"/admin/runs/run/{run.pk}/change/", f"/admin/runs/run/{run.pk}/prompt/3/", "/admin/runs/run/",
        "/admin/runs/run/?needs=stuck", "/admin/runs/write/",
    ]  # fmt: skip
    for width, scheme in ((1366, "light"), (390, "dark")):
        desk = review.Desk(browser, live_server, user, viewport={"width": width, "height": 900}, color_scheme=scheme)
        for path in paths:
            page = desk.open(path)
            assert desk.overflow() <= 0, (path, width)
            assert grave(page) == [], (path, scheme)
        assert desk.errors == []


def test_page_follows_a_run_to_its_end(browser: Browser, live_server: LiveServer, world: World) -> None:
    run = world.start()
    desk = review.Desk(browser, live_server, approving.person("chief", may=MAY))
    page = desk.open(f"/admin/runs/run/{run.pk}/change/")
    page.get_by_text("This page follows the run by itself.").wait_for()
    page.click("text=As JSON")
    rows = page.locator("table.waterfall tbody tr")
    before = rows.count()
    Draft.objects.create(run=run, route="r:m", text="I am about to", at=dbtime.now() + timedelta(seconds=60))
    page.get_by_text("I am about to").wait_for(timeout=20_000)
    Draft.objects.all().delete()
    world.approve(run)
    world.resume(run)
    page.locator("[data-status]", has_text="Completed").wait_for(timeout=20_000)
    assert rows.count() > before
    assert page.locator("[data-hint]").count() == 0
    assert page.locator("[data-part=ids] details").get_attribute("open") is not None
    assert "Refund sent, attempt 1" in page.locator("table.waterfall").inner_text()
    assert desk.errors == []


def test_page_is_whole_without_scripts(browser: Browser, live_server: LiveServer, world: World) -> None:
    run = world.start()
    desk = review.Desk(browser, live_server, approving.person("chief", may=MAY), java_script_enabled=False)
    page = desk.open(f"/admin/runs/run/{run.pk}/change/")
    assert "Waiting for a person's decision" in page.locator("table.waterfall").inner_text()
    assert "reload it to see what happened since" in page.locator("[data-hint]").inner_text()


def test_stuck_runs_are_retried_from_their_list(browser: Browser, live_server: LiveServer, world: World) -> None:
    run = world.admit()
    Run.objects.filter(pk=run.pk).update(due_at=dbtime.now() - timedelta(minutes=5))
    desk = review.Desk(browser, live_server, approving.person("chief", may=MAY))
    page = desk.open("/admin/")
    page.locator(".number-box", has_text="Stuck").locator("a").click()
    page.check("input.action-select")
    page.click("button:has-text('Retry now')")
    page.select_option("#reason", "fault_fixed")
    page.click("button:has-text('Retry now')")
    page.wait_for_selector(".messagelist .success")
    assert world.events(run, "run.hurried")[0]["by"] == "chief"
    assert desk.errors == []
