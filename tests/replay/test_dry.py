"""`dry_run` over recorded runs: which decisions of the gate a changed profile or rule would turn (M112)."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agentsite.tenants import profiles
from runs import replay
from runs.management import tenancy
from runs.replay import dry
from tests.replay.record import CORPUS
from tests.replay.test_golden import NAMES, OLDER, recorded
from tools import gate
from tools.contracts import Check

Json = dict[str, Any]
pytestmark = pytest.mark.any_database
BY_CURRENCY = {"max_amount": "5000.00", "requires_approval_above": "1000.00", "two_people_above": "4000.00"}


def profile(folder: Path, **changes: Any) -> str:
    path = folder / "profile.json"
    path.write_text(json.dumps({**tenancy.DEFAULT_PROFILE, **changes}))
    return str(path)


def rule(**changes: str) -> Json:
    return {"issue_refund": {"by_currency": {"INR": {**BY_CURRENCY, **changes}}}}


def dried(*args: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    out = io.StringIO()
    try:
        call_command("dry_run", *args, stdout=out, stderr=io.StringIO(), skip_checks=True)
    except CommandError as error:
        return error.returncode, f"{out.getvalue()}\n{error}"
    return 0, out.getvalue()


def data(*args: str) -> tuple[int, Json]:
    code, said = dried(*args, "--json")
    return code, json.loads(said.splitlines()[0])


def case(name: str) -> str:
    return str(CORPUS / f"{name}.json")


def kinds(found: Json) -> list[tuple[str, str, str]]:
    """(kind, rule then, rule now) of each change."""
    changes = (change for run in found["would_differ"] for change in run["changes"])
    return [(c["kind"], c["was"]["rule"], c["would_be"]["rule"]) for c in changes]


@pytest.mark.parametrize("path", [*(CORPUS / f"{name}.json" for name in NAMES), *OLDER], ids=lambda path: path.stem)
def test_recorded_decisions_are_judged_the_same_by_the_code_that_made_them(path: Path) -> None:
    document = json.loads(path.read_text())
    judged = dry.judge(document)
    made = [e for e in document["events"] if e["type"] == "gate.decided" and e["meta"]["rule"] != "evidence_changed"]
    assert (judged.changes, judged.other_rule, judged.decisions) == ((), 0, len(made))


def test_corpus_under_the_profile_it_was_made_with_differs_nowhere(tmp_path: Path) -> None:
    code, said = dried("--profile", profile(tmp_path), case("happy_path"), case("injected_note_obeyed_and_denied"))
    assert code == 0
    assert said.endswith("of 2 runs judged by today's rules under the given profile; none would differ.\n")


def test_higher_threshold_lets_through_what_was_asked_and_says_by_how_much(tmp_path: Path) -> None:
    changed = profile(tmp_path, write_tools=rule(requires_approval_above="3000.00"))
    code, said = dried("--profile", changed, case("happy_path"), case("small_amount_without_a_person"))
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert code == 1 and lines[-1] == "1 decision would differ"
    row = next(line for line in lines if line.startswith("req-8472 "))
    assert "issue_refund 8472 pay_9002 2000.00 INR" in row
    assert "needs_approval (one person): refund_above_1000_requires_approval" in row
    assert "allow: refund_within_own_authority" in row
    assert "threshold 1000.00 INR → 3000.00 INR" in row
    assert "allowed without a person 1 2000.00 INR" in lines
    assert "2 decisions of 2 runs judged by today's rules under the given profile." in lines


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("small_amount_without_a_person", {"write_tools": rule(requires_approval_above="100.00")},
         ("newly_asked", "refund_within_own_authority", "refund_above_100_requires_approval")),
        ("happy_path", {"write_tools": rule(two_people_above="1500.00")},
         ("more_people", "refund_above_1000_requires_approval", "refund_above_1000_requires_approval")),
        ("two_people_decide", {},
         ("fewer_people", "refund_above_1000_requires_approval", "refund_above_1000_requires_approval")),
        ("happy_path", {"write_tools": rule(max_amount="1500.00", two_people_above="1400.00")},
         ("newly_denied", "refund_above_1000_requires_approval", "amount_exceeds_ceiling")),
        ("happy_path", {"blocked_tools": ["issue_refund"]},
         ("newly_denied", "refund_above_1000_requires_approval", "tool_not_in_scope")),
        ("happy_path", {"policy_pin": "POL-REF-004@v5"},
         ("newly_denied", "refund_above_1000_requires_approval", "policy_stale")),
        ("small_amount_without_a_person", {"sensitive": {"en": {"approval": ["charged twice"]}}},
         ("newly_asked", "refund_within_own_authority", "sensitive_words_require_approval")),
        ("small_amount_without_a_person",
         {"aggregates": {"INR": {"customer_day": {"count": 1, "amount": "400.00"}}}},
         ("newly_asked", "refund_within_own_authority", "customer_day_total_requires_approval")),
        ("happy_path", {"limits": {"max_model_calls": 3}}, ("newly_stopped", "", "a_cap")),
        ("happy_path", {"sensitive": {"en": {"person": ["charged twice"]}}},
         ("newly_handed_over", "", "sensitive_words")),
    ],
)  # fmt: skip
def test_each_field_that_counts_turns_its_decision(
    tmp_path: Path, name: str, changes: Json, expected: tuple[str, str, str]
) -> None:
    code, found = data("--profile", profile(tmp_path, **changes), case(name))
    assert (code, kinds(found)) == (1, [expected])
    assert found["changes"][expected[0]]["count"] == 1


def test_ceiling_that_is_raised_no_longer_denies() -> None:
    document = recorded("happy_path")
    event = next(e for e in document["events"] if e["type"] == "gate.decided")
    small = tenancy.DEFAULT_PROFILE | {"write_tools": rule(max_amount="1500.00", two_people_above="1400.00")}
    [denied] = dry.judge(document, profiles.parse(small)).changes
    assert denied.numbers["amount_exceeds_ceiling"]["limit"][1] == {"amount": "1500.00", "currency": "INR"}
    checks = [c for c in event["payload"]["checks"] if c["name"] not in ("within_own_authority",)]
    checks[-1] |= {"ok": False}
    event["payload"]["checks"] = checks
    event["meta"] |= {"decision": "deny", "rule": "amount_exceeds_ceiling", "required": 0}
    [change] = dry.judge(document).changes
    assert (change.kind, change.now["rule"]) == ("no_longer_denied", "refund_above_1000_requires_approval")


def test_fields_that_do_not_count_turn_nothing(tmp_path: Path) -> None:
    changed = profile(
        tmp_path, approval_ttl_s=5, queue_owner="x@y.example", people_tools=[], read_tools=["get_order"],
        commerce={"url": "https://b.example", "read_token_env": "R", "write_token_env": "W"},
    )  # fmt: skip
    code, found = data("--profile", changed, *[case(name) for name in ("happy_path", "rejected")])
    assert (code, found["changes"]) == (0, {})


def test_changed_rule_differs_in_every_decision_after_the_first_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two decisions of one run: a replay stops at the first, a dry run judges both."""
    real = gate._amount_checks

    def stricter(*args: Any) -> Iterator[Check]:
        yield from real(*args)
        yield Check(name="never_on_a_monday", ok=False)

    monkeypatch.setattr(gate, "_amount_checks", stricter)
    code, said = dried(case("verified_with_a_further_write"))
    assert code == 1 and "2 decisions would differ" in said
    assert said.count("deny: never_on_a_monday") == 2
    assert "denied                     2        1998.00 INR" in said


def test_rule_that_is_only_renamed_is_told_and_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "OWN_AUTHORITY", "needs_nobody")
    code, said = dried(case("small_amount_without_a_person"))
    assert (code, "1 decision the same by a rule of another name." in said) == (0, True)


def test_decision_that_read_no_facts_goes_no_further_than_the_record() -> None:
    """A tool that was not in scope then and is now: nobody read the order for it."""
    document = recorded("happy_path")
    event = next(e for e in document["events"] if e["type"] == "gate.decided")
    event["payload"] |= {"facts": {}, "checks": [{"name": "tool_not_in_scope", "ok": False}]}
    event["meta"] |= {"decision": "deny", "rule": "tool_not_in_scope", "required": 0}
    [change] = dry.judge(document).changes
    assert (change.kind, change.now["rule"]) == ("beyond_the_record", "facts_not_on_record")


def test_runs_that_cannot_be_judged_are_named(tmp_path: Path) -> None:
    odd, erased = recorded("happy_path"), recorded("rejected")
    odd["schema"] = 99
    erased["events"].append({
        **erased["events"][-1], "type": "data.erased", "seq": 99, "meta": {"class": "evidence"}, "at": "2026-01-01",
    })  # fmt: skip
    paths = [tmp_path / "odd.json", tmp_path / "erased.json"]
    for path, document in zip(paths, (odd, erased), strict=True):
        path.write_text(json.dumps(document))
    code, found = data(*map(str, paths), case("happy_path"))
    assert (code, found["runs"]) == (0, 1)
    assert [row["why"].split(":")[0] for row in found["not_judged"]] == ["schema_unknown", "erased"]
    code, said = dried(*map(str, paths), case("happy_path"))
    assert "2 runs not judged:" in said and "odd.json: schema_unknown: schema 99" in said


def test_runs_of_another_agent_or_tenant_are_left_out(tmp_path: Path) -> None:
    code, found = data("--profile", profile(tmp_path, agent="returns"), case("happy_path"))
    assert (code, found["not_judged"][0]["why"]) == (1, "a run of agent refunds")
    code, found = data("--tenant", "t_other", case("happy_path"))
    assert (code, found["not_judged"][0]["why"]) == (1, "a run of tenant t_acme_in")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--profile", "{profile}"], "--profile needs --tenant"),
        (["--profile", "nowhere.json", "{run}"], "nowhere.json"),
        (["--profile", "{misspelt}", "{run}"], "wirte_tools"),
        (["--since", "0"], "--since is a whole number from 1 to 36500"),
        (["--since", "99999999"], "--since is a whole number from 1 to 36500"),
        (["--limit", "9" * 20], "--limit is a whole number from 1 to 1000000"),
        (["--limit", "5", "{run}"], "--limit says nothing about runs that are named"),
        (["{misspelt}x"], "no run has"),
    ],
)
@pytest.mark.django_db
def test_what_says_nothing_is_refused(tmp_path: Path, args: list[str], words: str) -> None:
    misspelt = tmp_path / "misspelt.json"
    misspelt.write_text(json.dumps({**tenancy.DEFAULT_PROFILE, "wirte_tools": {}}))
    known = {"profile": profile(tmp_path), "misspelt": str(misspelt), "run": case("happy_path")}
    code, said = dried(*[arg.format(**known) for arg in args])
    assert (code, words in said) == (1 if "no run" in words else 2, True)


@pytest.mark.parametrize(
    "odd",
    [
        lambda d: d["run"].pop("usage"), lambda d: d["run"].pop("agent"), lambda d: d["turns"][0].update(proposals="x"),
        lambda d: decided(d)["payload"]["facts"]["order"].update(amount_due={}),
        lambda d: decided(d)["meta"].update(decision_id=None),
        lambda d: decided(d)["payload"]["facts"].update(payments=[True]),
        lambda d: d["approvals"][0].update(execute_by=1.5), lambda d: d["approvals"][0]["decisions"][0].update(at="x"),
    ],
)  # fmt: skip
def test_record_that_is_not_as_an_export_writes_it_is_named_and_holds_no_other_up(
    odd: Callable[[Json], Any], tmp_path: Path
) -> None:
    document = json.loads((CORPUS / "happy_path.json").read_text())
    odd(document)
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(document))
    code, found = data(str(file), case("happy_path"), "--profile", profile(tmp_path))
    assert (code, found["runs"] + len(found["not_judged"])) == (0, 2)
    assert all(row["why"].startswith("not readable: ") for row in found["not_judged"])
    with contextlib.suppress(replay.BadRecord):
        replay.play(document)


def decided(document: Json) -> Json:
    found: Json = next(e for e in document["events"] if e["type"] == "gate.decided")
    return found
