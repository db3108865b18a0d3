"""Sign-in through a company's provider on a real site, as its environment switches it on (M115)."""

from __future__ import annotations

import re
import subprocess
import sys

import httpx
import pytest

from tests.conftest import MakeSite
from tests.idp import CLIENT, SECRET, Provider
from tests.system.site import clean_environment

pytestmark = pytest.mark.own_services


@pytest.mark.long
def test_staff_come_in_by_their_provider(make_site: MakeSite) -> None:
    with Provider() as provider:
        site = make_site("E", OIDC_ISSUER=provider.url, OIDC_CLIENT_ID=CLIENT, OIDC_CLIENT_SECRET=SECRET).start()
        with httpx.Client(base_url=site.url, follow_redirects=True, trust_env=False, timeout=30) as browser:
            page = browser.get("/admin/").text
            assert "Sign in with your company account" in page
            begin = re.search(r'href="(/oidc/authenticate/[^"]*)"', page)
            assert begin is not None
            console = browser.get(begin[1])
            assert (console.status_code, console.url.path) == (200, "/admin/")
            assert browser.get("/admin/approvals/approval/").status_code == 200
            assert browser.get("/admin/auth/user/").status_code == 403
        logs = "".join(log.read_text() for log in site.folder.glob("*.log"))
        assert SECRET not in logs and "eyJ" not in logs


@pytest.mark.any_database
def test_a_whole_configuration_switches_it_on(tmp_path: object) -> None:
    given = {"OIDC_ISSUER": "https://idp.example", "OIDC_CLIENT_ID": CLIENT, "OIDC_CLIENT_SECRET": SECRET}
    known = clean_environment(VAR_DIR=str(tmp_path), DJANGO_SETTINGS_MODULE="agentsite.settings", **given)
    code = (
        "import django\ndjango.setup()\nfrom django.conf import settings as s\nfrom django.urls import reverse\n"
        "print(s.AUTHENTICATION_BACKENDS[-1], reverse('oidc_authentication_init'), s.OIDC_USE_PKCE)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[-3:] == ["agentsite.oidc.CompanyBackend", "/oidc/authenticate/", "True"], done.stderr


@pytest.mark.any_database
def test_half_a_configuration_does_not_start(tmp_path: object) -> None:
    known = clean_environment(VAR_DIR=str(tmp_path), OIDC_ISSUER="https://idp.example", OIDC_CLIENT_SECRET=SECRET)
    code = [sys.executable, "manage.py", "check"]
    done = subprocess.run(code, env=known, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "all three or none" in done.stderr and SECRET not in done.stderr
