"""Windows of retention, the `purge` that keeps them, and `erase_customer`; a tenant may only shorten (M106)."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command

from agentsite import clock, dbtime, env
from agentsite.tenants.models import AgentProfile
from approvals.models import Notice
from runs import retention, sweeper
from runs.management import tenancy
from runs.models import Delivery, Event, Input, Run, Webhook, Write
from tests import approving
from tests.planted import in_database
from tests.world import TENANT, World, final, gather
from tests.world import _database_url as database_url

pytestmark = pytest.mark.django_db
Json = dict[str, Any]
OTHER = "t_other"


def command(name: str, *args: str) -> Json:
    out = io.StringIO()
    call_command(name, *args, "--json", stdout=out, stderr=io.StringIO(), skip_checks=True)
    found: Json = json.loads(out.getvalue().splitlines()[-1])
    return found


def ended(request_id: str, days: float, *, tenant_id: str = TENANT, said: str = "", **columns: Any) -> Run:
    """A run that ended so many days ago, with a message in it."""
    row = approving.run(tenant_id=tenant_id, request_id=request_id, goal=f"Order 8472 {said}")
    Event.objects.filter(run=row).delete()
    approving.wrote(row, said or "a word")
    at = dbtime.now() - timedelta(days=days)
    over = {"status": "completed", "outcome": "answered", "waiting_for": None, "completed_at": at, "created_at": at}
    Run.objects.filter(pk=row.pk).update(**{**over, **columns})
    return Run.objects.get(pk=row.pk)


def erased(run: Run) -> tuple[bool, bool]:
    """Whether its conversation and its evidence are."""
    row = Run.objects.get(pk=run.pk)
    return row.conversation_erased_at is not None, row.evidence_erased_at is not None


def webhook(run: Run, number: int, days: float, **columns: Any) -> Webhook:
    at = dbtime.now() - timedelta(days=days)
    row = Webhook.objects.create(
        id=f"msg_{run.request_id}_{number}", run=run, tenant_id=run.tenant_id, type="run.completed", seq=number,
        url="https://client.example/hook", body='{"said": "words"}', created_at=at,
        **{"state": "delivered", "ended_at": at, **columns},
    )  # fmt: skip
    Delivery.objects.create(webhook=row, number=1, at=at, status=200)
    return row


def notice(run: Run, days: float, **columns: Any) -> Notice:
    at = dbtime.now() - timedelta(days=days)
    values = {"state": "sent", "ended_at": at, "period": f"{run.request_id}{days}", **columns}
    return Notice.objects.create(
        tenant_id=run.tenant_id, kind="digest", channel="email", address="lead@acme.example", created_at=at, **values
    )


# --- windows ------------------------------------------------------------------------------------------------------


def test_only_what_ended_before_its_window_goes(settings: Any) -> None:
    old, young = ended("old", 366), ended("young", 364)
    live = ended("live", 400, status="gathering", outcome=None, completed_at=None)
    assert command("purge", "--dry-run") == {
        "conversation": 1, "evidence": 1, "webhooks": 0, "notices": 0, "sessions": 0, "dry_run": True,
    }  # fmt: skip
    assert erased(old) == (False, False)
    assert command("purge")["conversation"] == 1
    assert (erased(old), erased(young), erased(live)) == ((True, True), (False, False), (False, False))
    assert command("purge") == dict.fromkeys(("conversation", "evidence", "webhooks", "notices", "sessions"), 0) | {
        "dry_run": False
    }


def test_a_tenant_may_shorten_and_never_lengthen() -> None:
    for tenant_id, days in ((TENANT, 30), (OTHER, 9_000)):
        approving.tenant(tenant_id)
        retained = {"conversation_days": days, "deliveries_days": days}
        tenancy.put_profile(tenant_id, {**tenancy.DEFAULT_PROFILE, "retention": retained})
    short, other = ended("short", 31), ended("other", 31, tenant_id=OTHER)
    long = ended("long", 366, tenant_id=OTHER)
    gone, kept = webhook(short, 1, 31), webhook(other, 1, 31)
    command("purge")
    assert (erased(short), erased(other), erased(long)) == ((True, False), (False, False), (True, True))
    assert list(Webhook.objects.values_list("pk", flat=True)) == [kept.pk] != [gone.pk]


def test_a_profile_that_nobody_can_read_leaves_the_sites_windows() -> None:
    approving.tenant()
    tenancy.put_profile(TENANT, {**tenancy.DEFAULT_PROFILE, "retention": {"conversation_days": 1}})
    AgentProfile.objects.update(document={"broken": True})
    run = ended("old", 300)
    command("purge")
    assert erased(run) == (False, False)


def test_of_one_tenant_alone() -> None:
    mine, other = ended("mine", 400), ended("other", 400, tenant_id=OTHER)
    assert command("purge", "--tenant", OTHER)["conversation"] == 1
    assert (erased(mine), erased(other)) == ((False, False), (True, True))
    with pytest.raises(CommandError, match="no tenant 't_none'"):
        command("purge", "--tenant", "t_none")


def test_deliveries_notices_and_sessions_go_by_their_own_time() -> None:
    run = ended("young", 100)
    due = {"state": "due", "due_at": dbtime.now()}
    each: list[tuple[int, Json]] = [(91, {}), (89, {}), (91, due), (91, {"state": "dead"})]
    for number, (days, columns) in enumerate(each):
        webhook(run, number, days, **columns)
    notice(run, 91)
    kept = [notice(run, 89), notice(run, 92, state="due", ended_at=None, due_at=dbtime.now())]
    for name, days in (("a", -1), ("b", 1)):
        Session.objects.create(session_key=name, session_data="", expire_date=dbtime.now() + timedelta(days=days))
    done = command("purge")
    assert (done["webhooks"], done["notices"], done["sessions"], done["conversation"]) == (2, 1, 1, 0)
    assert sorted(Webhook.objects.values_list("seq", flat=True)) == [1, 2]
    assert Delivery.objects.count() == 2
    assert set(Notice.objects.values_list("pk", flat=True)) == {n.pk for n in kept}
    assert list(Session.objects.values_list("pk", flat=True)) == ["b"]


def test_a_round_is_bounded_and_the_rest_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [ended(f"req-{number}", 400 - number / 10) for number in range(5)]
    monkeypatch.setattr(retention, "BATCH", 2)
    first = retention.purge(by="sweeper")
    assert (first.conversation, first.evidence, first.full) == (2, 2, True)
    assert [erased(r) for r in runs] == [(True, True)] * 2 + [(False, False)] * 3  # the oldest first
    assert command("purge")["conversation"] == 3
    assert retention.purge(by="sweeper") == retention.Purged()


def test_who_sweeps_purges_once_and_then_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 1.0, 3.0, 3.0, 4.0, 3603.5, 3603.5])
    monkeypatch.setattr(clock, "monotonic", lambda: next(moments))
    rounds = retention.Rounds()
    assert rounds.perhaps() is None  # not in the rush of a start
    run = ended("old", 400)
    done = rounds.perhaps()
    assert done is not None and done.conversation == 1 and erased(run) == (True, True)
    assert rounds.perhaps() is None
    assert rounds.perhaps() == retention.Purged()
    assert "perhaps" in sweeper.Thread._pass_alone.__code__.co_names


@pytest.mark.django_db(transaction=True)
def test_a_purge_that_is_killed_is_run_again() -> None:
    """SIGKILL of a real process between two runs: each is erased whole or not at all."""
    words = [f"word-{number}-of-a-customer" for number in range(6)]
    runs = [ended(f"req-{n}", 400, said=word) for n, word in enumerate(words)]
    code = (
        "import os, signal\n"
        "from runs.store import erasing\n"
        "from runs import retention\n"
        "real, done = erasing.erase, []\n"
        "def erase(*a, **k):\n"
        "    if len(done) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    done.append(1)\n"
        "    return real(*a, **k)\n"
        "erasing.erase = erase\n"
        "retention.purge(by='shell')\n"
    )
    known = {**env.child_environment(), "DATABASE_URL": database_url(), "ALLOWED_HOSTS": "testserver"}
    killed = subprocess.run(
        [sys.executable, "-c", "import django\ndjango.setup()\n" + code], env=known, capture_output=True, timeout=60
    )
    assert killed.returncode == -9, killed.stderr[-2000:]
    assert sum(erased(run)[0] for run in runs) == 3
    command("purge")
    assert [erased(run) for run in runs] == [(True, True)] * 6
    assert in_database(tuple(words)) == []
    assert Event.objects.filter(type="data.erased").count() == 12


# --- a customer ----------------------------------------------------------------------------------------------------


def test_a_customer_is_erased_whatever_the_windows(world: World) -> None:
    run = world.start(script=[*gather(), final("All is well.")], goal="It is about my Zanzibar order.")
    other = world.start("req-2", [*gather(), final("All is well.")], actor={"customer_id": "cust_9"}, goal="Mine too.")
    webhook(run, 90, 1)
    done = command("erase_customer", "cust_5521", "--tenant", TENANT, "--reason", "asked for it", "--by", "dpo")
    assert done == {"erased": ["req-8472"], "before": [], "kept": [], "webhooks": 1, "notices": 0}
    assert in_database(("Zanzibar",)) == []
    assert (erased(run), erased(other)) == ((True, True), (False, False))
    tomb = Event.objects.filter(run=run, type="data.erased").values_list("meta", flat=True)
    assert {(m["class"], m["why"], m["by"]) for m in tomb} == {
        ("conversation", "asked for it", "dpo"), ("evidence", "asked for it", "dpo"),
    }  # fmt: skip
    again = command("erase_customer", "cust_5521", "--tenant", TENANT, "--reason", "asked for it")
    assert (again["erased"], again["before"]) == ([], ["req-8472"])
    assert Event.objects.filter(run=run, type="data.erased").count() == 2


def test_runs_that_live_are_listed_with_what_stops_them(world: World) -> None:
    live = world.start()
    over = world.start("req-2", [*gather(), final("All is well.")])
    out = io.StringIO()
    with pytest.raises(CommandError, match="1 of the customer's runs are kept") as caught:
        call_command(
            "erase_customer", "cust_5521", "--tenant", TENANT, "--reason", "asked", stdout=out, skip_checks=True
        )
    assert caught.value.returncode == 1
    assert "erased  req-2" in out.getvalue()
    assert "kept    req-8472: it has not ended" in out.getvalue()
    assert (erased(live), erased(over)) == ((False, False), (True, True))
    world.approve(live)
    world.resume(live, until="completed")
    with pytest.raises(CommandError):
        command("erase_customer", "cust_5521", "--tenant", TENANT, "--reason", "asked")
    Write.objects.update(watch_at=None)
    assert command("erase_customer", "cust_5521", "--tenant", TENANT, "--reason", "asked")["erased"] == ["req-8472"]
    assert len(world.posts()) == 1


def test_another_tenants_customer_of_the_same_name_is_left_alone() -> None:
    mine, other = ended("mine", 1), ended("other", 1, tenant_id=OTHER)
    command("erase_customer", "cust_5521", "--tenant", TENANT, "--reason", "asked")
    assert (erased(mine), erased(other)) == ((True, True), (False, False))
    assert Input.objects.get(run=other).text == "a word"


@pytest.mark.parametrize("args", [("--reason", " "), ("--reason", "a\x00b")])
def test_an_erasure_needs_a_reason_in_plain_text(args: tuple[str, ...]) -> None:
    approving.tenant()
    with pytest.raises(CommandError) as caught:
        command("erase_customer", "cust_5521", "--tenant", TENANT, *args)
    assert caught.value.returncode == 2
