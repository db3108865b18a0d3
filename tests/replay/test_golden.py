"""The regression net: every recorded path of the failure diagram, replayed through today's code with nothing around.

No database, no sandbox and no model is there: a replay that needed one would fail by itself.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agentsite import money
from agentsite.tenants.profiles import WriteGrant
from runs import budgets, prompt, replay, reply, verifier
from runs.orchestrator import turns
from runs.replay import Difference
from runs.states import TRANSITIONS, On, Status
from tests.replay.cases import CASES
from tests.replay.record import CORPUS

Json = dict[str, Any]
ROOT = Path(replay.__file__).parent
NAMES = sorted(path.stem for path in CORPUS.glob("*.json"))
OLDER = sorted((CORPUS.parent / "older").glob("*.json"))


def recorded(name: str) -> Json:
    document: Json = json.loads((CORPUS / f"{name}.json").read_text())
    return document


def played(*args: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    out = io.StringIO()
    try:
        call_command("replay", *args, stdout=out, stderr=io.StringIO(), skip_checks=True)
    except CommandError as error:
        return error.returncode, f"{out.getvalue()}\n{error}"
    return 0, out.getvalue()


def found(name: str, what: str) -> Difference:
    """The one difference of that kind in a replay."""
    [difference] = [d for d in replay.play(recorded(name)).differences if d.what == what]
    return difference


def test_corpus_has_every_path_and_nothing_else() -> None:
    assert sorted(case.__name__ for case in CASES) == NAMES


@pytest.mark.parametrize(("case", "end"), CASES.items(), ids=[case.__name__ for case in CASES])
def test_golden_run_replays_the_same(case: Callable[..., Any], end: tuple[str, str | None, str | None]) -> None:
    """M79."""
    document = recorded(case.__name__)
    got = replay.play(document)
    assert (got.differences, got.information, got.left) == ((), (), 0)
    assert (document["run"]["status"], document["run"]["reason"], document["outcome"]) == end
    assert (got.turns, got.transitions) == (len(document["turns"]), len(document["transitions"]))
    assert got.steps == document["run"]["version"] - 1


@pytest.mark.parametrize("path", OLDER, ids=[path.stem for path in OLDER])
def test_run_that_an_older_release_recorded_replays_as_it_went(path: Path) -> None:
    """Its prompts had another fixed text, and that is all that differs; before schema 3 nothing was looked up first."""
    document = json.loads(path.read_text())
    got = replay.play(document)
    assert (document["schema"], got.differences, got.left) == (int(path.stem.split("_")[1]), (), 0)
    assert got.turns == len(document["turns"])
    assert {d.what for d in got.information} <= {"prompt hash", "prompt version"}
    assert ("evidence.found" in {e["type"] for e in document["events"]}) is (document["schema"] >= 3)


def test_golden_file_is_written_as_the_command_writes_it() -> None:
    for name in NAMES:
        assert (CORPUS / f"{name}.json").read_text() == replay.text(recorded(name)), name


def test_replay_says_how_much_was_the_same_and_exits_0() -> None:
    code, said = played(str(CORPUS / "happy_path.json"))
    run_id = recorded("happy_path")["run"]["run_id"]
    assert (code, said) == (0, f"The same: 4 turns, 1 decision and 8 transitions of run {run_id} were replayed.\n")


# --- a changed rule shows --------------------------------------------------------------------------------------


def test_changed_threshold_is_a_readable_diff_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that moved from 1,000 to 3,000: the decision, the way the run takes, and by how much, side by side."""
    real = WriteGrant.rule

    def lenient(self: WriteGrant, currency: str) -> Any:
        rule = real(self, currency)
        assert rule is not None
        return rule[0], money.parse({"amount": "3000.00", "currency": "INR"}), rule[2]

    monkeypatch.setattr(WriteGrant, "rule", lenient)
    code, said = played(str(CORPUS / "happy_path.json"))
    assert code == 1
    lines = [" ".join(line.split()) for line in said.splitlines()]
    place = "version 8, from action_proposed"
    assert f"{place} gate.decided decision needs_approval allow" in lines
    assert f"{place} gate.decided rule refund_above_1000_requires_approval refund_within_own_authority" in lines
    assert (
        f"{place} transition action_proposed → awaiting_approval on gate_needs_approval "
        "action_proposed → approved on gate_allowed"
    ) in lines
    told = f"{place} within_own_authority threshold"
    assert [line for line in lines if line.startswith(told) and "1000.00" in line and "3000.00" in line]
    assert "5 steps after it were not" in said
    code, said = played(str(CORPUS / "happy_path.json"), "--json")
    data = json.loads(said.splitlines()[0])
    assert (code, data["identical"], data["steps_left"]) == (1, False, 5)


def test_changed_key_and_changed_hash_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "write_key", lambda **_: "another")
    key = found("happy_path", "write.intent key")
    assert (key.recorded, key.now) == ("t_acme_in/req-8472:issue_refund:pay_9002", "another")
    monkeypatch.undo()
    monkeypatch.setattr(turns, "action_hash", lambda **_: "sha256:0")
    assert found("happy_path", "gate.decided action_hash").now == "sha256:0"


def test_changed_repair_bound_shows_in_the_way_a_run_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_REPAIRS", 1)
    one = found("repair_exhausted", "transition")
    assert (one.recorded, one.now) == ("stays gathering", "gathering → escalated on escalated (repair_exhausted)")


def test_changed_words_of_the_reply_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reply.OPEN_WRITE, "confirmed", "{What} has been made; its reference is {id}.")
    one = found("happy_path", "reply.sent text")
    assert "has been made and confirmed;" in one.recorded
    assert "has been made; its reference is rf_1." in one.now


def test_changed_verifier_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "_differences", lambda write, refund: [])
    one = found("mismatch_escalates", "transition")
    assert one.recorded == "executed → escalated on escalated (verification_failed)"
    assert one.now == "executed → verified on write_verified"


def test_changed_table_shows_as_what_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TRANSITIONS, (Status.AWAITING_APPROVAL, On.APPROVAL_REJECTED))
    one = found("rejected", "transition")
    assert one.now == "raises IllegalTransition: awaiting_approval does not take approval_rejected"


def test_code_that_asks_for_more_than_was_recorded_says_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that the record has no answer to is no call at all."""
    monkeypatch.setattr(budgets, "over", lambda run: None)
    one = found("budget_exhausted", "transition")
    assert one.now == "asks for what the record does not hold: a model turn"


def test_changed_prompt_is_information_and_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "RULES", prompt.RULES + "\n- Be kind.")
    got = replay.play(recorded("happy_path"))
    assert got.identical
    assert [d.what for d in got.information] == ["prompt hash"] * 4
    code, said = played(str(CORPUS / "happy_path.json"))
    assert (code, "For information, no failure" in said) == (0, True)


# --- a record that was changed, or is none ----------------------------------------------------------------------


def test_record_of_another_way_is_not_called_the_same() -> None:
    document = recorded("happy_path")
    gate = next(e for e in document["events"] if e["type"] == "gate.decided")
    gate["payload"]["facts"]["payments"][1]["state"] = "disputed"
    got = replay.play(document)
    [transition] = [d for d in got.differences if d.what == "transition"]
    assert transition.now == "action_proposed → escalated on escalated (needs_a_person)"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(format=2), "no exported run of format 1"),
        (lambda d: d.update(schema=99), "schema_unknown: schema 99, known: 1 to 4"),
        (lambda d: d["contract"].pop("limits"), "schema_unknown: contract: 1 faults"),
        (lambda d: d.pop("turns"), "not readable: KeyError: 'turns'"),
        (
            lambda d: next(e for e in d["events"] if e["type"] == "gate.decided").update(payload=None),
            r"the payload of event \d+ \(gate.decided\) was erased",
        ),
    ],
)
def test_document_that_cannot_be_replayed_says_why(change: Callable[[Json], Any], words: str) -> None:
    document = recorded("happy_path")
    change(document)
    with pytest.raises(replay.BadRecord, match=words):
        replay.play(document)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', '{"format": 1}'])
def test_file_that_is_no_record_is_one_line_and_exit_1(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(text)
    code, said = played(str(file))
    assert (code, "Traceback" in said, len(said.strip().splitlines())) == (1, False, 1)


# --- what a replay cannot do -------------------------------------------------------------------------------------


def test_player_reaches_no_model_no_tool_and_no_row() -> None:
    """`export` reads rows; whatever plays a record imports nothing that could."""
    never = (
        "runs.inference", "runs.models", "runs.store.load", "approvals.models", "approvals.queue", "django", "httpx",
        "tools.dispatcher", "tools.executor", "tools.facts", "tools.adapters", "tools.credentials", "tools.policy",
        "agentsite.dbtime", "agentsite.queues",
    )  # fmt: skip
    for path in sorted(ROOT.glob("*.py")):
        if path.name in ("export.py", "__init__.py"):
            continue
        tree = ast.parse(path.read_text())
        names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        papers = "runs.inference.dialects"  # they read a recorded answer and reach nobody
        assert not [n for n in names if n.startswith(never) and n != papers], path.name
        assert "LIVE" not in path.read_text(), path.name
