"""Chooses the database of in-process tests before Django reads its settings, and the fixtures that rooms share.

TEST_DATABASE=sqlite (the default) or postgres, which is started here, in the main thread it is bound to. The site under
test reads nothing of the developer's own environment. Where the caller named DJANGO_SETTINGS_MODULE himself, his
environment is taken as it is.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import django
import pytest
from _pytest.terminal import TerminalReporter
from django.db import connection
from pytest_django import DjangoDbBlocker

from agentsite import env
from agentsite.env import Environment
from agentsite.private.servers import Postgres
from tests import emptying, figures
from tests.system.business import Business
from tests.system.site import Ground, Site

MakeSite = Callable[..., Site]
Say = Callable[[str], None]
_folders: list[Path] = []
STAGES = ("scene", "pair", "shop", "fleet", "doors", "door", "host")
"""Fixtures that start a whole site, or eight processes, for their module; they stand in tests marked own_services."""


def _in_memory() -> str | None:
    """Where nothing is written through to a disk, if there is room: what these tests write may be lost with them."""
    path = Path("/dev/shm")
    roomy = path.is_dir() and os.access(path, os.W_OK) and shutil.disk_usage(path).free > 2 * 1024**3
    return str(path) if roomy else None


def _choose_database() -> None:
    if "agentsite.settings" in sys.modules:
        _own_folder()
        return
    for name in Environment.model_fields:
        os.environ.pop(name, None)
    folder = Path(tempfile.mkdtemp(prefix="agentsite-tests-", dir=_in_memory()))
    _folders.append(folder)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "agentsite.settings", "VAR_DIR": str(folder), "BROKER_URL": "memory://",
        "SECRET_KEY": "a secret of the tests alone, long enough for Django's own liking",
        "AUDIT_KEY": "k1:an audit key of the tests alone", "INSECURE_HTTP": "1",
    }  # fmt: skip
    kind = os.environ.get("TEST_DATABASE", "sqlite")
    if kind == "postgres":
        os.environ["DATABASE_URL"] = Postgres(durable=False).start().create_database("agentsite")
    elif kind != "sqlite":
        raise pytest.UsageError(f"TEST_DATABASE is sqlite or postgres, not {kind!r}")


def _own_folder() -> None:
    """One of several processes of a test run has its parent's environment, and a folder of its own in that one's: two
    that build and remove indexes in one folder would see each other's."""
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        own = Path(os.environ["VAR_DIR"]) / worker
        own.mkdir(exist_ok=True)
        os.environ["VAR_DIR"] = str(own)
        env.read.cache_clear()


_choose_database()
django.setup()  # pytest-django does it only where it found the settings itself, before this file
emptying.install()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one stage stay together: spread over workers, each of these would start a site of its own."""
    for item in items:
        for name in STAGES:
            if (
                isinstance(item, pytest.Function)
                and name in item.fixturenames
                and item.get_closest_marker("own_services")
            ):
                param = item.callspec.params.get(name, "") if hasattr(item, "callspec") else ""
                item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}-{name}-{param}"))


@pytest.fixture(autouse=True)
def _no_index_builder_is_left_over() -> Iterator[None]:
    """A thread that still builds, or a disk that took no index, is of the test before and of no other."""
    yield
    index = sys.modules.get("tools.policy.index")
    if index is not None:
        for thread in [t for t in threading.enumerate() if t.name == "policy-index"]:
            thread.join(30)
        index._here().not_before.clear()


def pytest_unconfigure() -> None:
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """The test database without what blocks Django's flush: the token table that ours replaces on PostgreSQL, the
    triggers that keep decisions and changes of shadow mode on SQLite, where a flush deletes rows."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS knox_authtoken")
        if connection.vendor == "sqlite":
            cursor.execute("DROP TRIGGER IF EXISTS approvals_decision_kept")
            cursor.execute("DROP TRIGGER IF EXISTS tenants_shadowchange_kept")


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    """What all private sites of a session stand on."""
    with Ground() as shared:
        yield shared


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Say:
    """Prints a measured number at the end of the session."""
    return figures.say(request.node)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    figures.show(terminalreporter)


@pytest.fixture
def business(tmp_path: Path) -> Iterator[Business]:
    """A sandbox business system of the test's own, with order 8472 charged twice."""
    with Business(tmp_path / "business.sqlite3") as system:
        system.seed_double_charge()
        yield system


@pytest.fixture
def make_site(ground: Ground, business: Business, tmp_path: Path) -> Iterator[MakeSite]:
    """Makes sites, not yet started, that end with the test: `make_site("E", LEASE_S="2")`."""
    made: list[Site] = []

    def make(setup: str, *, workers: int = 1, **environment: str) -> Site:
        folder = tmp_path / f"site{len(made)}"
        made.append(Site(setup, ground, folder, business.url, workers=workers, **environment))
        return made[-1]

    yield make
    for site in made:
        site.close()
