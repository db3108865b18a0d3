"""A real site's database put back from a backup while the business system went on: one refund in all (M124).

Everything is killed, the backup is put back, the site is started: writes are held until `fence`, then the run asks
again or finds the refund. PostgreSQL by `pg_dump`, SQLite by its own backup. How long lists may lag is a matter of
exact times, which `tests/integration/test_fence.py` holds in one process; here a refund shows up in time, whatever
the machine's pace.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from agentsite import clock
from agentsite.private import binaries
from agentsite.private.processes import wait_until
from runs.chaos.ground import SiteFailed
from tests.conftest import MakeSite, Say
from tests.system.business import KEY, Business
from tests.system.people import Client, Json, Staff, request_8472
from tests.system.site import STUCK_S, Site

pytestmark = pytest.mark.own_services

SETTLE_S = 4
BLIND = {"check_remaining": False, "supports_expected_refunded": False}
KINDS: dict[str, tuple[Json, dict[str, str]]] = {
    "honours": ({**BLIND, "honours_keys": True}, {"COMMERCE_HONOURS_KEYS": "1", "COMMERCE_SETTLE_S": str(SETTLE_S)}),
    "forgets": (
        {**BLIND, "honours_keys": True, "key_life_s": 0.5},
        {"COMMERCE_HONOURS_KEYS": "1", "COMMERCE_KEY_LIFE_S": "0.5", "COMMERCE_SETTLE_S": str(SETTLE_S)},
    ),
    "lists_late": (
        {**BLIND, "honours_keys": False, "lists_keys": False},
        {"COMMERCE_HONOURS_KEYS": "0", "COMMERCE_SETTLE_S": str(SETTLE_S)},
    ),
}  # fmt: skip
"""How a provider behaves, and what is said of it: a second POST would be a second refund in each."""
HOLD = "delay:300"


class Backup:
    """The site's database as it is now, in a file beside it."""

    def __init__(self, site: Site) -> None:
        self.site, self.file = site, site.folder / "backup"
        if site.setup == "P":
            _run("pg_dump", "--format=custom", f"--file={self.file}", f"--dbname={site.database}")
        else:
            with closing(_sqlite(site)) as live, closing(sqlite3.connect(self.file)) as copy:
                live.backup(copy)

    def put_back(self) -> None:
        """The database is the one of then. Nothing of the site may be alive."""
        if self.site.setup == "P":
            server, _, name = self.site.database.rpartition("/")
            with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
                connection.execute(f'CREATE DATABASE "{name}"'.encode())
            _run("pg_restore", f"--dbname={self.site.database}", str(self.file))
            return
        for ending in ("", "-wal", "-shm"):
            Path(_path(self.site) + ending).unlink(missing_ok=True)
        Path(_path(self.site)).write_bytes(self.file.read_bytes())


def _path(site: Site) -> str:
    return site.database.removeprefix("sqlite:///")


def _sqlite(site: Site) -> sqlite3.Connection:
    return sqlite3.connect(_path(site), timeout=20)


def _run(tool: str, *arguments: str) -> None:
    command = [str(binaries.postgres_bindir() / tool), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STUCK_S, check=False)
    assert done.returncode == 0, done.stderr


class Scene:
    """One site on one kind of provider, killed, put back and started as often as a test likes."""

    def __init__(self, site: Site, business: Business) -> None:
        self.site, self.business = site, business
        self.client = Client(site)

    def ask(self) -> Json:
        """The run that waits for a person."""
        return self.client.wait_for(self.client.admit(request_8472()), "awaiting_approval")

    def approve(self, run_id: str) -> None:
        Staff(self.site).approve(self.client.wait_for(run_id, "awaiting_approval")["approval"])

    def lose_everything_since(self, backup: Backup) -> None:
        """Everything is killed, the backup put back, everything started; the broker is as empty as at its first."""
        self.site.kill()
        backup.put_back()
        if self.site.broker is not None:
            self.site.broker.restart_at_once()
        self.business.control("/_calls", clear=True)
        self.site.start()

    def doctor(self) -> dict[str, str]:
        """Verdicts by name; a failing one is no failure of the command here."""
        try:
            told = self.site.manage("doctor", "--json")
        except SiteFailed as failed:
            told = str(failed)
        line = next(one for one in told.splitlines() if one.startswith("{"))
        return {one["name"]: one["verdict"] for one in json.loads(line)["checks"]}

    def fence(self) -> Json:
        told: Json = json.loads(self.site.manage("fence", "--json", "--reason=the backup of this test"))
        return told

    def held(self, run_id: str) -> bool:
        """Whether the run holds an approved write back, for the reason of a restore."""
        return any(e["type"] == "notice" and e["data"].get("held") == "restored" for e in self.client.events(run_id))


@pytest.fixture
def scene(request: pytest.FixtureRequest, make_site: MakeSite, business: Business) -> Iterator[Scene]:
    setup, kind = request.param
    behaviour, promises = KINDS[kind]
    business.control("/_config", **behaviour)
    yield Scene(make_site(setup, RETRY_S="0.2", **promises).start(), business)


def cells(*long: tuple[str, str]) -> pytest.MarkDecorator:
    """P and E on the kind whose lists alone remember; these further cells belong to the long tests."""
    short = pytest.param(("P", "lists_late"), id="P-lists_late")
    more = [pytest.param(cell, id="-".join(cell), marks=pytest.mark.long) for cell in (("E", "lists_late"), *long)]
    return pytest.mark.parametrize("scene", [short, *more], indirect=True)


def check_end(scene: Scene, run_id: str, made: Json, say: Say) -> Json:
    """One refund in all, made before the restore; no POST since; the customer is told its reference."""
    done = scene.client.wait_for(run_id, "completed")
    assert (scene.business.posts(), [r["refund_id"] for r in scene.business.made()]) == ([], [made["refund_id"]])
    assert made["refund_id"] in done["reply"] and made["refund_id"] in done["customer_message"]
    say(f"{scene.site.setup}: {done['outcome']} with the first reference, no POST after the restore")
    return done


@cells(("P", "honours"), ("P", "forgets"))
def test_backup_from_before_the_yes_pays_nothing_twice(scene: Scene, say: Say) -> None:
    """The refund is out of the lists while the yes is held, and while the run asks again."""
    run_id = scene.ask()["run_id"]
    backup = Backup(scene.site)
    scene.approve(run_id)
    scene.client.wait_for(run_id, "completed")
    (made,) = scene.business.made()
    scene.business.control(f"/_refunds/{made['refund_id']}", shown=False)
    scene.lose_everything_since(backup)
    assert scene.doctor()["restore"] == "fail"
    ready = scene.client.http.get(f"{scene.site.url}/health/ready")
    assert (ready.status_code, ready.json()["checks"]["fence"]) == (200, "demanded")
    scene.approve(run_id)
    assert wait_until(lambda: scene.held(run_id), STUCK_S)
    assert (scene.client.run(run_id)["status"], scene.business.posts()) == ("approved", [])
    told = scene.fence()
    assert (told["demanded"], told["approvals_void"], told["writes_doubted"]) == (True, 1, 0)
    scene.client.wait_for(run_id, "awaiting_approval")
    scene.business.control(f"/_refunds/{made['refund_id']}", shown=True)
    scene.approve(run_id)
    done = check_end(scene, run_id, made, say)
    assert (done["writes"], scene.doctor()["restore"]) == ([], "ok")


@cells(("P", "honours"), ("P", "forgets"))
def test_backup_with_an_intent_that_was_not_sent_pays_nothing_twice(scene: Scene, say: Say) -> None:
    """The backup's intent was never marked; the refund went out after it, and shows late."""
    run_id = scene.ask()["run_id"]
    # The release reads the refunds once; the look-up directly before the first byte is the read that hangs.
    scene.business.fault("GET /v1/refunds", "delay:0.01")
    scene.business.fault("GET /v1/refunds", HOLD)
    scene.approve(run_id)
    held = scene.client.wait_for(run_id, "executing")
    assert scene.business.holds("GET", "/v1/refunds")
    assert [w["state"] for w in held["writes"]] == ["intent"]
    backup = Backup(scene.site)
    scene.client.wait_for(run_id, "completed")  # the read is given up and made again
    (made,) = scene.business.made()
    scene.business.control(f"/_refunds/{made['refund_id']}", shown=False)
    scene.lose_everything_since(backup)
    assert wait_until(lambda: len(scene.business.calls("method=GET&path=/v1/refunds")) >= 3, STUCK_S)
    assert (scene.client.run(run_id)["status"], scene.business.posts()) == ("executing", [])
    scene.business.fault("GET /v1/refunds", HOLD, times=0)  # no list is answered between the fence and its showing
    told = scene.fence()
    assert (told["demanded"], told["approvals_void"], told["writes_doubted"]) == (True, 0, 1)
    scene.business.control(f"/_refunds/{made['refund_id']}", shown=True)
    scene.business.control("/_faults", clear=True)
    done = check_end(scene, run_id, made, say)
    assert [(w["key"], w["state"], w["refund_id"]) for w in done["writes"]] == [(KEY, "confirmed", made["refund_id"])]


@pytest.mark.long
@cells(("P", "honours"))
def test_refund_that_never_went_out_goes_out_once_after_the_fence(scene: Scene, say: Say) -> None:
    """Fenced for nothing: the run asks again, and the refund is made, no sooner than its lists could be trusted."""
    run_id = scene.ask()["run_id"]
    old = scene.client.run(run_id)["approval"]["approval_id"]
    told = scene.fence()
    assert (told["demanded"], told["approvals_void"]) == (False, 1)
    assert wait_until(lambda: scene.client.run(run_id)["approval"]["approval_id"] != old, STUCK_S)
    scene.approve(run_id)
    done = scene.client.wait_for(run_id, "completed")
    (post,) = scene.business.posts()
    assert (done["outcome"], len(scene.business.made())) == ("refunded", 1)
    waited = clock.parse_rfc3339(post["at"]) - clock.parse_rfc3339(told["fenced_at"])
    assert waited.total_seconds() > SETTLE_S
