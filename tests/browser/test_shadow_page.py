"""The page of a tenant in shadow mode in a real Chromium: narrow, dark, for everybody, and its one decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from agentsite import dbtime
from agentsite.tenants import shadowing
from runs.models import Shadow
from runs.orchestrator import compare_due
from tests import approving
from tests.browser import test_review_page as review
from tests.browser import test_run_pages as pages
from tests.operating import OPERATES
from tests.world import TENANT, final, gather, inr

if TYPE_CHECKING:
    from tests.world import World

browser, business_system, world, pytestmark = review.browser, pages.business_system, pages.world, review.pytestmark
PAGE = f"/admin/runs/shadow/of/{TENANT}/"


def compared(world: World) -> str:
    """A tenant whose proposals agree, overreach and wait; the page of the one that overreached."""
    shadowing.enter(TENANT, by="ops_3", reason="A new model: \u202eit must earn it")
    first = world.start("req-1", [*gather(), final()])
    second = world.start("req-2")
    Shadow.objects.update(compare_at=dbtime.now())
    compare_due()
    world.start("req-3")
    world.sandbox.control("/_refunds", payment_id="pay_9002", amount=inr("2000.00"))
    assert {s.verdict for s in Shadow.objects.filter(run__in=(first, second))} == {"agree", "overreach"}
    return f"/admin/runs/run/{second.pk}/change/"


def test_shadow_pages_fit_a_phone_and_the_dark_and_everybody_and_end_it(
    browser: Browser, live_server: LiveServer, world: World
) -> None:
    of_run = compared(world)
    user = approving.person("chief", may=(*OPERATES, "view_shadow", "leave_shadow"))
    for width, scheme in ((1366, "light"), (390, "dark")):
        desk = review.Desk(browser, live_server, user, viewport={"width": width, "height": 900}, color_scheme=scheme)
        for path in (PAGE, "/admin/runs/shadow/", of_run):
            page = desk.open(path)
            assert desk.overflow() <= 0, (path, width)
            assert pages.grave(page) == [], (path, scheme)
        page = desk.open(PAGE)
        assert desk.errors == []
    page.fill("#reason", "It has earned it.")
    page.click("text=End shadow mode")
    assert shadowing.stands(TENANT)  # the box was not ticked
    page.check("input[name=sure]")
    page.click("text=End shadow mode")
    page.get_by_text("Runs admitted from now on write.").wait_for()
    assert not shadowing.stands(TENANT)
    assert desk.errors == []
