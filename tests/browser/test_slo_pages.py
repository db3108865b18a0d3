"""Service levels and the tail calculator in a real Chromium: light and wide, dark and as narrow as a phone."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from agentsite import env
from runs.management import tenancy
from tests import approving, measuring
from tests.browser import test_review_page as review
from tests.browser.test_run_pages import grave

browser = review.browser
pytestmark = review.pytestmark
PRICES = (
    '{"currency": "USD", "models": {"gpt-x": {"input": "2.5", "output": "10"}, "small": {"input": "0.15", '
    '"cached": "0.075", "output": "0.6"}}}'
)
PATHS = ("/admin/runs/run/slo/", "/admin/runs/run/tail/")


def test_service_level_pages_fit_a_phone_and_the_dark_and_everybody(
    browser: Browser, live_server: LiveServer, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_PRICES", PRICES)
    env.read.cache_clear()
    tenancy.put_profile(approving.tenant().pk, tenancy.DEFAULT_PROFILE)
    measuring.save(measuring.ended(ago=timedelta(hours=7 * n), active_ms=3000 + 97 * n % 9000) for n in range(90))
    bad = {"status": "escalated", "outcome": "handed_to_staff", "reason": "budget_exhausted"}
    measuring.save(measuring.ended(ago=timedelta(hours=31 * n), release="1.1", **bad) for n in range(6))
    user = approving.person("chief", is_superuser=True)
    for width, scheme in ((1366, "light"), (390, "dark")):
        desk = review.Desk(browser, live_server, user, viewport={"width": width, "height": 900}, color_scheme=scheme)
        for path in PATHS:
            page = desk.open(path)
            if folder := os.environ.get("SLO_SHOTS"):
                name = f"{path.strip('/').replace('/', '_').replace('?', '_')}-{width}-{scheme}.png"
                page.screenshot(path=str(Path(folder) / name), full_page=True)
            assert desk.overflow() <= 0, (path, width)
            assert grave(page) == [], (path, scheme)
        assert desk.errors == []
