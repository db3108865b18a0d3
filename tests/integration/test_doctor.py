"""`doctor` says of the configuration and of every dependency what is right and what is not, in one line each."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agentsite import dbtime
from agentsite.tenants.models import AgentProfile, Tenant
from runs import qualification, sweeper
from runs.management import schema
from runs.models import Process, Qualification, Run, Write
from tests.postbox import Postbox
from tests.world import in_new_process
from tools.models import PolicyDocument

if TYPE_CHECKING:
    from tests.world import World

SYSTEM = "t_acme_in business system"
DATABASE = "ok" if connection.vendor == "sqlite" else "warn"
"""The tests' own PostgreSQL keeps nothing over a power cut, for speed, and `doctor` says so."""


@pytest.fixture
def shop(world: World) -> Iterator[World]:
    """W0 with a qualified model, somebody who decides, a mail server, a process that lives and a sweeper that swept."""
    world.settings(AGENT_MODELS="offline:investigator")
    qualification.ensure_offline()
    world.person()
    alive("host/1")
    sweeper.sweep()
    with Postbox() as post:
        world.settings(EMAIL_URL=post.url)
        yield world


def alive(name: str, *, queues: str = "passes,writes,maintenance", hung: int = 0) -> None:
    Process.objects.create(name=name, kind="up", queues=queues, pid=1, host="host", seen_at=dbtime.now(), hung=hung)


def looked(*args: str) -> tuple[str, bool]:
    """What the command printed, and whether it was content."""
    out = io.StringIO()
    try:
        call_command("doctor", *args, stdout=out, stderr=io.StringIO())
    except CommandError as error:
        assert error.returncode == 1
        return out.getvalue(), False
    return out.getvalue(), True


def found() -> dict[str, tuple[str, str]]:
    """Verdict and detail by name."""
    words, content = looked("--json")
    report: dict[str, Any] = json.loads(words)
    assert report["ok"] is content
    return {one["name"]: (one["verdict"], one["detail"]) for one in report["checks"]}


def test_doctor_finds_no_fault_in_a_whole_site(shop: World) -> None:
    report = found()
    assert {name for name, (verdict, _) in report.items() if verdict == "fail"} == set()
    assert report["database"][0] == DATABASE
    for name in ("migrations", "clocks", "broker", SYSTEM, "t_acme_in policy", "processes", "sweeper"):
        assert report[name][0] == "ok", report[name]
    assert report["refunds qualification"] == ("ok", "offline:investigator may propose writes (evaluated)")
    assert report["t_acme_in approvers"] == ("ok", "1 may decide")


def test_doctor_prints_one_line_a_finding_and_a_sum(shop: World, settings: Any) -> None:
    settings.AUDIT_KEY = f"k2:{'x' * 32},k1:older"
    shop.settings(PUBLIC_URL="https://agent.example")
    words, content = looked()
    lines = words.rstrip("\n").split("\n")
    odd = [line for line in lines[:-2] if not line.startswith("✓  ")]
    assert [line.split()[:2] for line in odd] == [["!", "database"]] * (DATABASE == "warn")
    assert content and lines[-1] == f"{len(lines) - 2 - len(odd)} ok, {len(odd)} to look at, 0 failing"
    assert "signs with k2; verifies k2, k1" in words and "older" not in words


def test_doctor_warns_where_the_heads_of_the_chain_cannot_be_noted(shop: World) -> None:
    log = shop.folder / "logs" / "heads.jsonl"
    shop.settings(HEADS_LOG=str(log))
    assert found()["heads log"] == ("ok", f"{log} has 0.0 MB; copy it off this host (docs/audit.md)")
    log.mkdir(parents=True)
    assert found()["heads log"][0] == "warn"


def test_doctor_asks_the_business_system_with_the_read_credential(shop: World) -> None:
    shop.sandbox.control("/_calls", clear=True)
    assert found()[SYSTEM][0] == "ok"
    calls = [(c["method"], c["path"], c["credential"], c["status"]) for c in shop.sandbox.calls()]
    assert calls == [("GET", "/v1/orders/doctor-no-such-order", "read", 404)]


def test_doctor_fails_where_the_business_system_is_away(shop: World) -> None:
    shop.settings(COMMERCE_URL="http://user:secret-word@127.0.0.1:1")
    words, content = looked()
    assert not content
    assert "http://127.0.0.1:1: does not answer" in words
    assert "secret-word" not in words


def test_doctor_fails_where_the_read_credential_is_refused(shop: World) -> None:
    shop.settings(COMMERCE_READ_TOKEN="another-token")
    verdict, detail = found()[SYSTEM]
    assert verdict == "fail"
    assert "the read credential is no good (access_refused): set COMMERCE_READ_TOKEN" in detail
    assert "another-token" not in looked()[0]


@pytest.mark.parametrize(
    ("queues", "verdict"), [("passes,writes,maintenance", "ok"), ("passes", "ok")], ids=["all", "passes"]
)
def test_doctor_knows_where_the_write_credential_belongs(shop: World, queues: str, verdict: str) -> None:
    shop.settings(WORKER_QUEUES=queues)
    assert found()["t_acme_in write credential"][0] == verdict


def test_doctor_looks_for_the_credentials_a_profile_names(shop: World) -> None:
    commerce = {"url": shop.sandbox.url, "read_token_env": "SHOP_READ", "write_token_env": "SHOP_WRITE"}
    shop.profile(commerce=commerce)
    report = found()
    assert report[SYSTEM][1].endswith("(credential_missing): set SHOP_READ")
    assert report["t_acme_in write credential"] == ("fail", "SHOP_WRITE is not set: nothing can be refunded")


def test_doctor_fails_where_another_policy_is_current(shop: World) -> None:
    PolicyDocument.objects.filter(version=4).update(status="superseded")
    PolicyDocument.objects.filter(version=3).update(status="current", effective_until=None)
    verdict, detail = found()["t_acme_in policy"]
    assert (verdict, detail) == ("fail", "POL-REF-004@v4 is pinned, but v3 is current: runs end as policy_stale")


def test_doctor_fails_where_the_first_route_is_not_qualified(shop: World) -> None:
    Qualification.objects.update(revoked=True)
    assert found()["refunds qualification"][0] == "fail"


def test_doctor_fails_where_a_route_has_no_dialect(shop: World) -> None:
    shop.settings(AGENT_MODELS="offline:investigator,anthropic_xml:claude", ANTHROPIC_API_KEY="sk-secret-word")
    report = found()
    assert report["model route 1"][0] == "ok"
    assert report["model route 2"][0] in ("fail", "ok")
    assert "sk-secret-word" not in looked()[0]


def test_doctor_names_a_profile_that_no_code_reads(shop: World) -> None:
    newest = AgentProfile.objects.order_by("-revision")[0]
    AgentProfile.objects.create(
        tenant_id=newest.tenant_id, agent="refunds", revision=newest.revision + 1, document={"read_tols": []}
    )
    verdict, detail = found()["profile"]
    assert verdict == "fail" and "t_acme_in/refunds@" in detail


def test_doctor_without_tenants_says_what_to_run(shop: World) -> None:
    AgentProfile.objects.all().delete()
    assert found()["tenants"] == ("fail", "none has a profile: run `manage.py bootstrap`")


def test_doctor_warns_where_nobody_works_or_decides(shop: World) -> None:
    Process.objects.all().delete()
    for person in shop.people.values():
        person.staff_tenants.all().delete()
    report = found()
    assert report["processes"][0] == report["t_acme_in approvers"][0] == "warn"
    assert looked()[1] is True


def test_doctor_warns_where_a_queue_is_nobodys(shop: World) -> None:
    Process.objects.update(queues="passes")
    assert found()["processes"] == ("warn", "nobody consumes writes, maintenance; alive: up host/1")


def test_doctor_fails_where_a_thread_hangs(shop: World) -> None:
    alive("host/2", hung=1)
    verdict, detail = found()["processes"]
    assert (verdict, detail) == ("fail", "a thread is past twice its deadline in host/2: restart it")


def test_doctor_finds_runs_that_nobody_takes(shop: World) -> None:
    run = shop.admit()
    Run.objects.filter(pk=run.pk).update(due_at=dbtime.now() - timedelta(seconds=90))
    assert found()["runs"] == ("fail", "1 due for over 60 s and taken by nobody: req-8472")


def test_doctor_finds_writes_of_unknown_end(shop: World) -> None:
    run = shop.start()
    shop.approve(run)
    shop.resume(run, until="completed")
    Write.objects.update(state="unknown")
    verdict, detail = found()["writes"]
    Write.objects.update(state="confirmed")
    assert verdict == "warn"
    assert detail.startswith("1 with an unknown end") and "issue_refund:pay_9002" in detail


def test_doctor_tells_stopped_writes(shop: World) -> None:
    Tenant.objects.update(paused=True)
    assert found()["stop switches"] == ("warn", "writes are stopped for t_acme_in")
    Tenant.objects.update(paused=False)


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [("SECRET_KEY", "short", "warn"), ("AUDIT_KEY", "k1:short", "warn"), ("AUDIT_KEY", "k1:", "fail")],
)
def test_doctor_weighs_keys_and_shows_none(shop: World, settings: Any, name: str, value: str, verdict: str) -> None:
    setattr(settings, name, value)
    assert found()[name][0] == verdict
    assert "short" not in looked()[0]


def test_doctor_without_a_database_tells_the_rest(shop: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "fault", lambda: "the database at db:5432 cannot be reached (TimeoutError)")
    report = found()
    assert report["database"] == ("fail", "the database at db:5432 cannot be reached (TimeoutError)")
    assert report["broker"][0] == "ok"
    assert "runs" not in report


def test_doctor_fails_where_the_broker_is_away(shop: World) -> None:
    code = (
        "import json\n"
        "from runs.management.findings import configuration\n"
        "one = [f for f in configuration.examine() if f.name == 'broker'][0]\n"
        "print(json.dumps([one.verdict, one.detail]))"
    )
    said = in_new_process(code, BROKER_URL="redis://:secret-word@127.0.0.1:1/0")
    verdict, detail = json.loads(said.splitlines()[-1])
    assert verdict == "fail"
    assert detail.startswith("redis://127.0.0.1:1/0 does not answer")


PRICED = '{"currency": "USD", "models": {"openai:gpt-x": {"input": "2.50", "output": "10.00"}}}'


def test_doctor_says_where_the_cap_on_cost_cannot_hold(shop: World) -> None:
    assert "model prices" not in found()
    shop.settings(AGENT_MODELS="offline:investigator,openai:gpt-x,anthropic:opus")
    assert found()["model prices"] == (
        "warn", "none for openai:gpt-x, anthropic:opus in MODEL_PRICES: max_cost cannot hold there"
    )  # fmt: skip
    shop.settings(MODEL_PRICES=PRICED)
    assert found()["model prices"] == (
        "warn", "none for anthropic:opus in MODEL_PRICES: max_cost cannot hold there"
    )  # fmt: skip
    shop.settings(AGENT_MODELS="openai:gpt-x")
    assert found()["model prices"] == ("ok", "openai:gpt-x: known, in USD")


def test_doctor_fails_where_a_cap_is_in_another_currency_than_the_prices(shop: World) -> None:
    shop.settings(MODEL_PRICES=PRICED)
    assert "t_acme_in max_cost" not in found()
    shop.profile(limits={"max_cost": {"amount": "80.00", "currency": "INR"}})
    fault = "limits.max_cost is in INR, MODEL_PRICES in USD: runs end before the first call that costs money"
    assert found()["t_acme_in max_cost"] == ("fail", fault)
