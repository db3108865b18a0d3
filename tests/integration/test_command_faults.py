"""Foreseeable faults are one line and exit code 1, never a traceback."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, ProgrammingError

from agentsite import env
from runs.management import schema

NEEDS_TABLES: list[list[str]] = [
    ["create_token", "--tenant", "t_acme_in", "--name", "shop"],
    ["create_approver", "lead", "--tenant", "t_acme_in"],
    ["bootstrap"],
    ["why", "req-8472"],
    ["ask", "hello", "--customer", "c"],
    ["doctor"],
]


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    known = env.child_environment(DATABASE_URL=None, SECRET_KEY=None, AUDIT_KEY=None, VAR_DIR=str(folder))
    command = [sys.executable, str(env.ROOT / "manage.py"), *args]
    return subprocess.run(command, env=known, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("args", NEEDS_TABLES, ids=lambda args: args[0])
@pytest.mark.any_database
def test_command_on_an_empty_database_says_what_to_run(tmp_path: Path, args: list[str]) -> None:
    done = run(tmp_path, *args)
    said = (done.stdout if args == ["doctor"] else done.stderr).strip()
    assert done.returncode == 1
    assert "run `manage.py migrate`" in said and "Traceback" not in done.stderr
    assert args == ["doctor"] or "\n" not in said


@pytest.mark.any_database
def test_create_tenant_on_an_empty_database_says_what_to_run(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text('{"read_tools": ["get_order"], "policy_pin": "POL-REF-004@v4"}')
    done = run(tmp_path, "create_tenant", "t_new", "--profile", str(profile))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "run `manage.py migrate`" in done.stderr


def test_database_that_is_away_is_one_line_without_its_password(tmp_path: Path) -> None:
    command = [sys.executable, str(env.ROOT / "manage.py"), "why", "req-8472"]
    url = "postgres://anna:secret-word@127.0.0.1:1/shop"
    known = env.child_environment(DATABASE_URL=url, SECRET_KEY="x" * 60, VAR_DIR=str(tmp_path))
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("CommandError: the database at 127.0.0.1:1 cannot be reached")
    assert done.stderr.count("\n") == 1 and "secret-word" not in done.stderr


def broken(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*_: object) -> None:
        raise error

    monkeypatch.setattr("runs.management.commands.why.find_run", find)


@pytest.mark.django_db
def test_error_of_a_whole_database_is_a_bug_and_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(ProgrammingError("ours"), monkeypatch)
    monkeypatch.setattr(schema, "fault", lambda: None)
    with pytest.raises(ProgrammingError):
        call_command("why", "x", stdout=io.StringIO())


def test_error_is_told_by_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(OperationalError("no such table: runs_run"), monkeypatch)
    monkeypatch.setattr(schema, "unreachable", lambda: None)
    monkeypatch.setattr(schema, "missing_migrations", lambda: ["runs.0001_initial", "runs.0002_more"])
    with pytest.raises(CommandError) as caught:
        call_command("why", "x", stdout=io.StringIO())
    assert str(caught.value) == "2 migrations are missing (runs.0001_initial first): run `manage.py migrate`"


@pytest.mark.parametrize("name", ["demo", "ask", "why", "doctor"])
@pytest.mark.any_database
def test_command_has_help_with_its_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        call_command(name, "--help")
    assert caught.value.code == 0
    assert "Exit codes" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("args", [["ask"], ["ask", "x"], ["why"], ["demo", "--port", "0"], ["demo", "--port", "x"]])
@pytest.mark.any_database
def test_wrong_usage_is_exit_2(tmp_path: Path, args: list[str]) -> None:
    assert run(tmp_path, *args).returncode == 2
