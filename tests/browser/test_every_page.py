"""Every page of the console in a real Chromium, over hostile rows: nothing runs, nothing hides, nothing sticks out."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, Page
from pytest_django.live_server_helper import LiveServer

from tests import everywhere
from tests.browser import test_review_page as review

browser = review.browser
pytestmark = [*review.pytestmark, pytest.mark.any_database]
GRAVE = ("serious", "critical")
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
AXE: dict[str, Any] = {"runOnly": STANDARDS, "resultTypes": ["violations"], "preload": False}
WIDEST = """(() => {
  const out = (e) => e.getBoundingClientRect().right > window.innerWidth + 1;
  const inner = [...document.querySelectorAll("body *")].filter((e) => out(e) && ![...e.children].some(out));
  return inner.slice(0, 3).map((e) => `${e.tagName} ${e.className} in ${e.parentElement.className}`).join(", ");
})()"""
EVERY_DAY = {
    "login",
    "approvals_approval_changelist",
    "approvals_approval_change",
    "runs_run_change",
    "runs_write_change",
}
NEVER = ("/admin/logout/", "/admin/jsi18n/")


def pages(user: User, kinds: set[str] | None = None) -> list[tuple[str, str]]:
    """(kind, address) of what answers with a page; refusals, redirects and data are for other tests."""
    client = Client()
    client.force_login(user)
    found = [("login", "/admin/login/")]
    for kind, path in everywhere.addresses():
        if path in NEVER or (kinds is not None and kind not in kinds):
            continue
        answer = client.get(path)
        assert answer.status_code < 500, path
        if answer.status_code == 200 and answer["Content-Type"].startswith("text/html"):
            found.append((kind, path))
    return found


@pytest.mark.long
def test_every_page_holds_under_hostile_rows(browser: Browser, live_server: LiveServer, transactional_db: None) -> None:
    """Each once: light and wide, then dark and as wide as a phone. Accessibility once a kind of page."""
    lead = everywhere.stage()
    assert faults(browser, live_server, lead, pages(lead)) == []


def test_the_pages_of_every_day_hold_under_hostile_rows(
    browser: Browser, live_server: LiveServer, transactional_db: None
) -> None:
    """One of each of those that most people look at most."""
    lead = everywhere.stage()
    every_day = dict(pages(lead, EVERY_DAY))
    assert set(every_day) == EVERY_DAY
    assert faults(browser, live_server, lead, list(every_day.items())) == []


def faults(browser: Browser, server: LiveServer, user: User, found: list[tuple[str, str]]) -> list[str]:
    """What is wrong with these pages, in words."""
    desk = review.Desk(browser, server, user, viewport={"width": 1440, "height": 900}, color_scheme="light")
    still(desk.page)
    told, seen = list[str](), set[str]()
    for kind, path in found:
        told += [f"{path}: {fault}" for fault in look(desk, path, axe=kind not in seen)]
        seen.add(kind)
    return told


def still(page: Page) -> None:
    """Colours change at once: one that still fades is no colour of the page."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("Animation.enable")
    devtools.send("Animation.setPlaybackRate", {"playbackRate": 100_000})


def look(desk: review.Desk, path: str, *, axe: bool) -> list[str]:
    """What is wrong with one page, in words."""
    page = desk.page
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="light")
    answer = page.goto(desk.server.url + path, wait_until="load")
    assert answer is not None and answer.status == 200, path
    found = stuck_out(desk, 1440)
    text = str(page.evaluate("document.body.innerText"))
    found += [f"hides {ord(c):04x}" for c in everywhere.INVISIBLE if c in text]
    found += ["a script ran"] if page.evaluate("window.ran") else []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    found += stuck_out(desk, 390)
    found += desk.errors
    found += [*grave(page, "color-contrast"), *_in_the_light(page)] if axe else []
    desk.errors.clear()  # what axe itself leaves is not the page's
    return found


def stuck_out(desk: review.Desk, width: int) -> list[str]:
    """By how much the page is wider than its window, and by what."""
    by = desk.overflow()
    return [f"sticks out by {by} px at {width}: {desk.page.evaluate(WIDEST)}"] if by > 0 else []


def _in_the_light(page: Page) -> list[str]:
    page.emulate_media(color_scheme="light")
    return grave(page)


def grave(page: Page, *rules: str) -> list[str]:
    """Rules of accessibility that the page breaks seriously, each with the first place."""
    options = {**AXE, **({"runOnly": {"type": "rule", "values": list(rules)}} if rules else {})}
    review.settle(page)
    broken = Axe().run(page, options=options).response["violations"]
    return [f"{v['id']} at {v['nodes'][0]['target']}" for v in broken if v["impact"] in GRAVE]
