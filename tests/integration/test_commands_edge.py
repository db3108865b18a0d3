"""The commands that set an installation up: safe to repeat, exact exit codes, secrets shown once."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core import checks as django_checks
from django.core.management import CommandError, call_command

from agentsite import checks, env
from agentsite.tenants.models import AgentProfile, ServiceToken, Site, StaffTenant, Tenant, current_profile
from runs.management import schema, staff, tenancy
from runs.management.commands import web
from runs.models import Qualification
from tests import edge
from tools.models import PolicyDocument

pytestmark = pytest.mark.django_db
TOO_FINE = {"max_amount": "5.001", "requires_approval_above": "1"}


@pytest.fixture(autouse=True)
def _migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests look at is not the migration table."""
    monkeypatch.setattr("runs.management.commands.bootstrap.missing_migrations", list)
    monkeypatch.delenv("APPROVER_PASSWORD", raising=False)


def run(name: str, *args: str) -> str:
    out = io.StringIO()
    call_command(name, *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def warned(name: str, *args: str) -> str:
    err = io.StringIO()
    call_command(name, *args, stdout=io.StringIO(), stderr=err)
    return err.getvalue()


def fails(code: int, name: str, *args: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(name, *args)
    assert caught.value.returncode == code
    return str(caught.value)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(tenancy.DEFAULT_PROFILE))
    return file


def test_bootstrap_makes_all_a_first_run_needs() -> None:
    done = json.loads(run("bootstrap", "--json"))
    assert (done["tenant"], done["profile_revision"], done["qualified"]) == ("t_acme_in", 1, True)
    granted = current_profile("t_acme_in")
    assert granted is not None
    assert (granted.policy_pin, granted.queue_owner) == ("POL-REF-004@v4", "refunds@acme.example")
    rule = granted.write_tools["issue_refund"].by_currency["INR"]
    assert (rule.max_amount, rule.requires_approval_above, rule.two_people_above) == ("5000.00", "1000.00", "4000.00")
    assert list(PolicyDocument.objects.order_by("version").values_list("doc_id", "version", "status")) == [
        ("POL-REF-004", 3, "superseded"), ("POL-REF-004", 4, "current"),
    ]  # fmt: skip
    assert Site.objects.get().paused is False
    assert set(Group.objects.values_list("name", flat=True)) == {
        "approvers", "senior approvers", "operators", "auditors",
    }  # fmt: skip
    assert Qualification.objects.count() == 1


def test_bootstrap_again_changes_nothing() -> None:
    run("bootstrap")
    narrower = {**tenancy.DEFAULT_PROFILE, "approval_ttl_s": 60}
    tenancy.put_profile("t_acme_in", narrower)
    PolicyDocument.objects.filter(version=4).update(status="superseded")
    done = json.loads(run("bootstrap", "--json"))
    assert done == {"tenant": None, "profile_revision": None, "policies": [], "groups": [], "qualified": False}
    granted = current_profile("t_acme_in")
    assert granted is not None and granted.approval_ttl_s == 60
    assert not PolicyDocument.objects.filter(status="current").exists()


def test_bootstrap_without_migrations_is_one_line_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.management.commands.bootstrap.missing_migrations", lambda: ["runs.0001_initial"])
    assert fails(1, "bootstrap") == "migrations are missing: run `manage.py migrate` first"
    assert Tenant.objects.count() == 0


def test_groups_hold_what_the_contract_names() -> None:
    staff.put_groups()

    def held(name: str) -> set[str]:
        rows = Group.objects.get(name=name).permissions.values_list("content_type__app_label", "codename")
        return {f"{app}.{codename}" for app, codename in rows}

    assert "approvals.decide_approval" in held("approvers")
    assert "approvals.decide_large_approval" not in held("approvers")
    assert {"approvals.decide_approval", "approvals.decide_large_approval"} <= held("senior approvers")
    assert {"runs.operate_run", "runs.settle_write", "runs.pause_tenant"} <= held("operators")
    assert "approvals.decide_approval" not in held("operators")
    assert all(".view_" in label for label in held("auditors"))


def test_create_tenant_works_at_once(profile: Path) -> None:
    made = json.loads(run("create_tenant", "t_beta", "--profile", str(profile), "--json"))
    assert (made["tenant"], made["new"], made["profile_revision"]) == ("t_beta", True, 1)
    assert len(made["policies"]) == 2
    assert PolicyDocument.objects.get(tenant_id="t_beta", status="current").version == 4
    assert edge.post(edge.client(edge.token("t_beta")), edge.RUNS, edge.body()).status_code == 202


def test_create_tenant_again_adds_a_revision_for_runs_to_come(profile: Path) -> None:
    run("create_tenant", "t_beta", "--profile", str(profile))
    before = edge.admitted(edge.client(edge.token("t_beta")))
    profile.write_text(json.dumps({**tenancy.DEFAULT_PROFILE, "limits": {"max_model_calls": 4}}))
    assert json.loads(run("create_tenant", "t_beta", "--profile", str(profile), "--json"))["profile_revision"] == 2
    assert json.loads(run("create_tenant", "t_beta", "--profile", str(profile), "--json"))["profile_revision"] is None
    shop = edge.client(edge.token("t_beta"))
    assert edge.admitted(shop, "req-2")["contract"]["limits"]["max_model_calls"] == 4
    assert shop.get(f"{edge.RUNS}/{before['run_id']}").json()["contract"]["limits"]["max_model_calls"] == 12
    assert AgentProfile.objects.count() == 2


def test_create_tenant_warns_of_a_cap_that_no_price_can_be_held_against(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_PRICES", '{"currency": "EUR", "models": {}}')
    env.read.cache_clear()
    words = "warning: limits.max_cost is in USD, MODEL_PRICES in EUR: runs end before the first call that costs money"
    assert words in warned("create_tenant", "t_beta", "--profile", str(profile))
    monkeypatch.delenv("MODEL_PRICES")
    env.read.cache_clear()
    assert "max_cost" not in warned("create_tenant", "t_beta", "--profile", str(profile))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"read_tols": []}, "read_tols"),
        ({"read_tools": ["get_odrer"]}, "get_odrer"),
        ({"policy_pin": "POL"}, "policy_pin"),
        ({"write_tools": {"issue_refund": {"by_currency": {"INR": TOO_FINE}}}}, "INR"),
    ],
)  # fmt: skip
def test_create_tenant_refuses_a_profile_with_a_fault(profile: Path, changes: dict[str, Any], words: str) -> None:
    profile.write_text(json.dumps({**tenancy.DEFAULT_PROFILE, **changes}))
    assert words in fails(1, "create_tenant", "t_beta", "--profile", str(profile))
    assert (Tenant.objects.count(), AgentProfile.objects.count()) == (0, 0)


def test_create_tenant_refuses_what_is_no_file_no_json_and_no_id(profile: Path, tmp_path: Path) -> None:
    assert "cannot read" in fails(1, "create_tenant", "t_beta", "--profile", str(tmp_path / "none.json"))
    profile.write_text('{"agent": "a", "agent": "b"}')
    assert "twice" in fails(1, "create_tenant", "t_beta", "--profile", str(profile))
    fails(2, "create_tenant", "T-Beta", "--profile", str(profile))
    assert Tenant.objects.count() == 0


def test_create_tenant_says_what_is_missing(profile: Path) -> None:
    profile.write_text(json.dumps({**tenancy.DEFAULT_PROFILE, "policy_pin": "POL-OWN-001@v1"}))
    words = warned("create_tenant", "t_beta", "--profile", str(profile))
    assert "POL-OWN-001@v1" in words
    assert "COMMERCE_*" in words


def test_create_token_prints_the_token_alone_on_its_last_line() -> None:
    edge.tenant()
    token = run("create_token", "--tenant", "t_acme_in", "--name", "shop", "--scopes", "runs:read").splitlines()[-1]
    assert len(token) == 64
    row = ServiceToken.objects.get()
    assert (row.scopes, row.tenant_id, row.expiry) == ("runs:read", "t_acme_in", None)
    assert (row.user.username, row.user.has_usable_password(), row.user.is_staff) == (
        "svc-t_acme_in-shop",
        False,
        False,
    )
    assert edge.client(token).get(edge.RUNS).status_code == 200
    second = json.loads(run("create_token", "--tenant", "t_acme_in", "--name", "shop", "--json"))
    assert list(second) == ["token"]
    assert edge.client(second["token"]).get(edge.RUNS).status_code == 200
    assert edge.client(token).get(edge.RUNS).status_code == 200
    assert User.objects.count() == 1


def test_create_token_refuses_what_it_does_not_know() -> None:
    edge.tenant()
    fails(1, "create_token", "--tenant", "t_none", "--name", "shop")
    fails(2, "create_token", "--tenant", "t_acme_in", "--name", "shop", "--scopes", "runs:all")
    fails(2, "create_token", "--tenant", "t_acme_in", "--name", "shop", "--scopes", "")
    fails(2, "create_token", "--tenant", "t_acme_in", "--name", "a b")
    assert (ServiceToken.objects.count(), User.objects.count()) == (0, 0)


def test_create_approver_prints_a_made_password_once() -> None:
    edge.tenant()
    password = run("create_approver", "anna", "--tenant", "t_acme_in").splitlines()[-1]
    user = User.objects.get(username="anna")
    assert user.check_password(password)
    assert (user.is_staff, user.is_superuser) == (True, False)
    assert list(StaffTenant.objects.values_list("user__username", "tenant_id")) == [("anna", "t_acme_in")]
    assert user.has_perm("approvals.decide_approval")
    assert not user.has_perm("approvals.decide_large_approval")
    assert not user.has_perm("runs.settle_write")
    again = run("create_approver", "anna", "--tenant", "t_acme_in", "--large", "--settle")
    assert password not in again
    user = User.objects.get(username="anna")
    assert user.check_password(password)
    assert user.has_perm("approvals.decide_large_approval")
    assert user.has_perm("runs.settle_write")
    assert not user.has_perm("runs.pause_tenant")
    run("create_approver", "anna", "--tenant", "t_acme_in")
    assert not User.objects.get(username="anna").has_perm("approvals.decide_large_approval")


def test_create_approver_takes_the_password_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    edge.tenant()
    monkeypatch.setenv("APPROVER_PASSWORD", "short")
    text = run("create_approver", "anna", "--tenant", "t_acme_in")
    assert "short" not in text
    assert User.objects.get(username="anna").check_password("short")
    assert "weak" in warned("create_approver", "anna", "--tenant", "t_acme_in")
    assert json.loads(run("create_approver", "anna", "--tenant", "t_acme_in", "--json"))["password"] is None


def test_create_approver_refuses_unknown_tenants_and_names() -> None:
    edge.tenant()
    fails(1, "create_approver", "anna", "--tenant", "t_none")
    fails(2, "create_approver", "an na", "--tenant", "t_acme_in")
    fails(2, "create_approver", "svc-t_acme_in-shop", "--tenant", "t_acme_in")
    assert User.objects.count() == 0


@pytest.mark.parametrize("name", ["bootstrap", "create_tenant", "create_token", "create_approver", "web"])
def test_command_has_help_with_its_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        call_command(name, "--help")
    assert caught.value.code == 0
    assert "Exit codes" in " ".join(capsys.readouterr().out.split())


def test_web_refuses_missing_migrations_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "missing_migrations", lambda: ["runs.0002_a", "runs.0003_b"])
    words = fails(1, "web")
    assert words == "2 migrations are missing (runs.0002_a first): run `manage.py migrate`"


def test_web_is_set_up_with_a_short_grace_and_trusts_no_header() -> None:
    found = web.configuration(host="127.0.0.1", port=0)
    assert (found.timeout_graceful_shutdown, found.proxy_headers, found.app) == (3, False, "agentsite.asgi:application")


def test_missing_migrations_are_none_in_a_migrated_database() -> None:
    assert schema.missing_migrations() == []


# --- system checks ----------------------------------------------------------------------------------------------


def test_checks_find_no_fault_in_what_ships() -> None:
    edge.tenant()
    found = [
        checks.registry_is_whole(None),
        checks.assertions_are_on(None),
        checks.profiles_can_be_loaded(None, ["default"]),
    ]
    assert found == [[], [], []]


def test_check_names_a_profile_no_code_reads() -> None:
    row = edge.tenant()
    AgentProfile.objects.create(tenant=row, agent="refunds", revision=2, document={"read_tols": ["secret"]})
    found = checks.profiles_can_be_loaded(None, ["default"])
    assert {fault.id for fault in found} == {"agentsite.E003"}
    assert any("read_tols" in str(fault.msg) for fault in found)
    assert not any("secret" in str(fault.msg) for fault in found)


def test_check_refuses_python_without_assertions() -> None:
    assert [fault.id for fault in checks.assertions(on=False)] == ["agentsite.E002"]


@pytest.mark.parametrize(("key", "expected"), [("x" * 49, ["agentsite.W001"]), ("x" * 50, [])])
def test_check_warns_of_a_short_secret_key(settings: Any, key: str, expected: list[str]) -> None:
    settings.SECRET_KEY = key
    assert [fault.id for fault in checks.secret_key_is_long(None)] == expected


def test_checks_are_registered_with_the_site() -> None:
    assert apps.is_installed("agentsite")
    names = {getattr(check, "__name__", "") for check in django_checks.registry.registry.registered_checks}
    assert {"registry_is_whole", "assertions_are_on", "secret_key_is_long", "profiles_can_be_loaded"} <= names
