"""`dry_run` over stored runs: which it takes, what it reads, and that it writes nothing (M112)."""

from __future__ import annotations

import json
from pathlib import Path

from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.models import Run
from tests.between import put_back
from tests.integration.test_replay import WRITES, command, fails
from tests.replay.test_dry import data, profile, rule
from tests.world import TENANT, World


def test_stored_runs_are_judged_under_another_profile_and_nothing_is_written(world: World, tmp_path: Path) -> None:
    run = world.start()
    calls = len(world.sandbox.calls())
    changed = profile(tmp_path, write_tools=rule(requires_approval_above="3000.00"))
    with CaptureQueriesContext(connection) as queries:
        code, found = data("--profile", changed, "--tenant", TENANT)
    assert not [q for q in queries.captured_queries if q["sql"].lstrip().upper().startswith(WRITES)]
    assert len(world.sandbox.calls()) == calls
    assert (code, found["runs"], found["decisions"]) == (1, 1, 1)
    assert found["changes"] == {"newly_allowed": {"count": 1, "money": {"INR": "2000.00"}}}
    assert found["would_differ"][0]["run_id"] == str(run.pk)
    file = tmp_path / "run.json"
    file.write_text(command("export_run", "req-8472"))
    assert data("--profile", changed, str(file)) == data("--profile", changed, "req-8472") == (code, found)


def test_only_runs_of_the_tenant_and_of_these_days_are_judged_newest_first(world: World) -> None:
    old, new = world.start("req-1"), world.start("req-2")
    put_back(Run.objects.filter(pk=old.pk), created_at=40 * 86_400)
    assert data("--tenant", TENANT)[1]["runs"] == 1
    assert data("--tenant", TENANT, "--since", "50")[1]["runs"] == 2
    assert data("--since", "50", "--limit", "1")[1]["runs"] == 1
    assert data("--tenant", "t_other")[1]["runs"] == 0
    Run.objects.filter(pk=new.pk).update(schema=99)
    code, none = data("--tenant", TENANT)
    assert (code, none["runs"], [row["run"] for row in none["not_judged"]]) == (1, 0, [str(new.pk)])


def test_request_of_several_tenants_must_be_named_with_its_tenant(world: World) -> None:
    world.start()
    world.begin("t_other")
    world.people.clear()
    world.start()
    assert "--tenant" in fails(2, "dry_run", "req-8472")
    assert json.loads(command("dry_run", "req-8472", "--tenant", "t_other", "--json"))["runs"] == 1
