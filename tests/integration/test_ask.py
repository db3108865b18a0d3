"""`ask` puts one case from the terminal: rows like any door's, its own worker only where nobody else works."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from agentsite import dbtime, env
from approvals.models import Decision
from runs import qualification
from runs.models import Process, Run
from tests.world import _database_url as database_url

if TYPE_CHECKING:
    from tests.world import World

Json = dict[str, Any]
WORDS = "I was charged twice for this order"


@pytest.fixture
def shop(world: World) -> World:
    """W0 with the model that ships, which really reads what it is shown."""
    world.settings(AGENT_MODELS="offline:investigator")
    qualification.ensure_offline()
    return world


def ask(*args: str) -> subprocess.CompletedProcess[str]:
    """The command as a shell runs it, on this test's database."""
    command = [sys.executable, str(env.ROOT / "manage.py"), "ask", WORDS, "--customer", "cust_5521", *args]
    known = env.child_environment(DATABASE_URL=database_url())
    return subprocess.run(command, env=known, capture_output=True, text=True, timeout=60)


def here(*args: str) -> str:
    out = io.StringIO()
    call_command("ask", WORDS, "--customer", "cust_5521", *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def refused(code: int, *args: str) -> str:
    with pytest.raises(CommandError) as caught:
        here(*args)
    assert caught.value.returncode == code
    return str(caught.value)


def test_ask_rests_at_the_question_and_exits_0(shop: World) -> None:
    done = ask("--order", "8472")
    assert (done.returncode, done.stderr) == (0, "")
    run = Run.objects.get()
    assert (run.status, run.waiting_for) == ("awaiting_approval", "approval")
    assert run.request_id.startswith("ask-")
    assert "a person decides on exactly this action" in done.stdout
    assert "It waits for: a person's decision" in done.stdout
    assert shop.said(run) in done.stdout
    assert shop.refunds() == []


def test_ask_with_approve_ends_with_the_reply(shop: World) -> None:
    done = ask("--order", "8472", "--approve")
    assert (done.returncode, done.stderr) == (0, "")
    run, decision = Run.objects.get(), Decision.objects.get()
    assert (run.status, run.outcome) == ("completed", "refunded")
    assert run.reply is not None and run.reply in done.stdout
    assert [r["payment_id"] for r in shop.refunds()] == ["pay_9002"]
    assert "shell-approver approves, because of --approve" in done.stdout
    assert (decision.by, decision.counted) == ("shell-approver", True)


@pytest.mark.any_database
def test_asker_and_approver_are_two_users_nobody_signs_in_as(shop: World) -> None:
    ask("--order", "8472", "--approve")
    asker, approver = User.objects.get(username="svc-t_acme_in-shell"), User.objects.get(username="shell-approver")
    assert Run.objects.get().created_by == f"user:{asker.pk}"
    assert not asker.has_usable_password() and not approver.has_usable_password()
    assert not asker.has_perm("approvals.decide_approval")
    assert approver.has_perm("approvals.decide_approval")
    assert not approver.has_perm("approvals.decide_large_approval")


@pytest.mark.any_database
def test_approve_does_not_reach_what_needs_two_people(shop: World) -> None:
    shop.limits(two_people_above="1500.00")
    done = ask("--order", "8472", "--approve")
    assert done.returncode == 0
    assert Run.objects.get().status == "awaiting_approval"
    assert "not approved: You may not decide approvals of this size." in done.stderr
    assert shop.refunds() == []


@pytest.mark.any_database
def test_ask_json_is_the_run_alone(shop: World) -> None:
    done = ask("--order", "8472", "--json")
    shown: Json = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert (shown["status"], shown["pending_action"]["args"]["payment_id"]) == ("awaiting_approval", "pay_9002")


@pytest.mark.any_database
def test_ask_about_somebody_elses_order_refunds_nothing(shop: World) -> None:
    shop.seed(customer_id="cust_other")
    done = ask("--order", "8472", "--approve")
    assert done.returncode == 0
    assert Run.objects.get().outcome == "answered"
    assert shop.refunds() == []


@pytest.mark.any_database
def test_ask_that_is_escalated_exits_1(shop: World) -> None:
    shop.settings(AGENT_MODELS="offline:nobody")
    done = ask("--order", "8472")
    assert done.returncode == 1
    assert done.stderr.strip() == "CommandError: the run ended as escalated (dependency_unavailable)"


def test_ask_leaves_the_work_to_a_process_that_lives(shop: World) -> None:
    Process.objects.create(
        name="other/1", kind="up", queues="passes,writes,maintenance", pid=1, host="other", seen_at=dbtime.now()
    )
    words = refused(1, "--order", "8472", "--limit", "0.3")
    assert words == "still accepted after 0.3 s; it goes on where workers live"
    assert Run.objects.get().model_calls == 0
    assert list(Process.objects.values_list("name", flat=True)) == ["other/1"]


def test_ask_needs_workers_where_the_broker_is_no_part_of_this_process(shop: World) -> None:
    shop.settings(BROKER_URL="redis://127.0.0.1:1/0")
    assert refused(1, "--order", "8472") == (
        "no live worker is on record: start `manage.py worker`, then ask again"
    )  # fmt: skip
    assert Run.objects.count() == 0


def test_ask_refuses_what_admission_would_not_take(shop: World) -> None:
    assert refused(2, "--order", "bad id").startswith("order_ids.0: ")
    assert refused(1, "--tenant", "t_none") == "no tenant 't_none': make it with `create_tenant` or `bootstrap`"
    assert Run.objects.count() == 0
