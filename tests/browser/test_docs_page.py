"""The page to read the API by, in a real Chromium: nothing from elsewhere, no console error under the strict policy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright
from pytest_django.live_server_helper import LiveServer

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install the package chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_docs_page_shows_every_call_without_a_console_error(
    browser: Browser, live_server: LiveServer, width: int, scheme: str
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    page = browser.new_context(**options).new_page()  # type: ignore[arg-type]
    errors, elsewhere = list[str](), list[str]()
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: errors.append(request.url))
    page.on("request", lambda r: elsewhere.append(r.url) if not r.url.startswith((live_server.url, "data:")) else None)
    answer = page.goto(f"{live_server.url}/api/docs/")
    assert answer is not None and answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy
    page.wait_for_selector("#operations-runs-runs_events")
    assert page.locator(".opblock").count() == 12
    page.click("#operations-runs-runs_events .opblock-summary-control")
    page.wait_for_selector("text=Last-Event-ID")
    page.wait_for_selector(".response[data-code='204']")
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert (errors, elsewhere) == ([], [])
