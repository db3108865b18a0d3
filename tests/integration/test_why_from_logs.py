"""`why --from-logs` tells a run's story from log lines alone, and agrees with `why` on all that a log carries (M77)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from runs import explain
from runs.models import Event, Run
from tests import logs
from tests.world import ENDED, KEY, World, final, gather, inr, reads, refund, s0, worker_dies

Json = dict[str, Any]
NOISE = ["no JSON at all", '{"event": "http", "run_id": "another"}', "[1, 2]", '{"broken', ""]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """What this process logs, as `LOG_FORMAT=json` writes it, among lines that are not ours."""
    path = tmp_path / "site.log"
    path.write_text("\n".join(NOISE) + "\n")
    with logs.kept(path):
        yield path


def printed(*args: str) -> str:
    out = io.StringIO()
    call_command("why", *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def from_log(log: Path, name: str) -> explain.Explanation:
    return explain.explain_lines(explain.find_lines([log.open], name))


def same(log: Path, run: Run) -> explain.Explanation:
    """Both stories, without words; they are one."""
    rows, lines = explain.explain(explain.read(run)).without_words(), from_log(log, str(run.pk)).without_words()
    assert lines.wire() == rows.wire()
    return lines


def refunded(world: World) -> Run:
    run = world.start()
    world.approve(run)
    return world.resume(run, until="completed")


def test_why_from_logs_agrees_on_a_refund(world: World, log: Path) -> None:
    told = same(log, refunded(world))
    assert (told.status, told.outcome) == ("completed", "refunded")
    assert (told.writes[0].key, told.writes[0].amount, told.writes[0].state) == (KEY, inr("2000.00"), "confirmed")
    for words in (
        "4,000.00 INR captured, 0.00 INR refunded and 2,000.00 INR due, which leaves 2,000.00 INR to give back",
        "and lead_17 approved exactly this action (sha256:", f"sent once under the idempotency key {KEY}, and was answ",
        "An independent read then found ",
    ):  # fmt: skip
        assert words in told.answer


def test_why_from_logs_agrees_at_every_rest_of_a_run(world: World, log: Path) -> None:
    run = world.start()
    assert same(log, world.fresh(run)).approvals[0].status == "pending"
    world.approve(run)
    assert same(log, world.fresh(run)).approvals[0].status == "approved"
    worker_dies(world.fresh(run), after="post")
    assert same(log, world.fresh(run)).writes[0].state == "sent"
    run = world.resume(run, until="completed")
    assert [look["type"] for look in same(log, run).writes[0].look_ups] == ["write.reconciled"]
    assert len(world.refunds()) == 1


def test_why_from_logs_agrees_on_a_rejection_without_its_words(world: World, log: Path) -> None:
    run = world.start(script=[*gather(), refund(), final(), final()])
    world.reject(run, "the parcel is on its way")
    told = same(log, world.resume(run, until="completed"))
    assert "lead_17 rejected it on " in told.answer and "parcel" not in log.read_text()
    assert world.refunds() == []


def test_why_from_logs_agrees_where_nothing_is_due(world: World, log: Path) -> None:
    world.seed(amount_due=inr("4000.00"))
    run = world.start(script=[*gather(), final()])
    told = same(log, world.fresh(run))
    assert told.outcome == "no_refund_due" and "nothing is left to give back on order 8472" in told.answer
    assert world.refunds() == []


def test_why_from_logs_agrees_on_denial_message_and_cancel(world: World, log: Path) -> None:
    world.limits(max_amount="1500.00")
    run = world.start(script=[*gather(), refund(), reads("get_order"), refund(amount="1200.00")])
    world.message(run, "my grandmother called me at midnight")
    world.cancel(run)
    told = same(log, world.resume(run, until="cancelled"))
    assert [g.decision for g in told.gate] == ["deny", "needs_approval"]
    assert "grandmother" not in log.read_text() and world.refunds() == []


def test_log_holds_no_words_of_anybody(world: World, log: Path) -> None:
    run = refunded(world)
    text, goal = log.read_text(), run.contract["goal"]
    for words in (goal, "charged twice", "Thank you for your patience", "cust_5521", "duplicate capture", run.reply):
        assert words and words not in text


WORD = "ZEBRAWORT我要退款"
"""Words that no blank gives away, in a script that has none."""
SAYING: list[list[Any]] = [
    [[{"tool": WORD, "args": {WORD: WORD}}], [{"tool": "get_order", "args": {"order_id": WORD}}]],
    [*gather(), refund(reason=WORD, cited=(WORD,)), refund(payment_id=WORD), refund(amount=WORD, currency=WORD)],
    [{"tool": "message", "args": {"text": WORD}}, {"tool": "ask", "args": {"question": WORD}}],
    [{"tool": "escalate", "args": {"reason": WORD}}],
    [*gather(), refund(reason=WORD), refund(reason=WORD)],
    [*gather(), final(WORD), final(WORD), final(WORD)],
]


@pytest.mark.parametrize("script", SAYING)
def test_log_holds_no_words_without_blanks_either(world: World, log: Path, script: list[Any]) -> None:
    world.seed(note=WORD, status=WORD)
    run = world.start(script=script, goal=WORD)
    if run.status not in ENDED:
        world.message(run, WORD)
        run = world.resume(run)
    if run.status == "awaiting_approval":
        world.reject(run, WORD)
        run = world.resume(run)
    text = log.read_text()
    assert "ZEBRAWORT" not in text and f'"seq": {run.last_seq}' in text


def test_log_has_one_line_an_event_with_its_ids_and_mac(world: World, log: Path) -> None:
    run = refunded(world)
    lines = explain.find_lines([log.open], "req-8472")
    rows = Event.objects.filter(run=run).order_by("seq")
    told = [(e["event"], e["seq"], e["version"], e["span"], e["mac"]) for e in lines.events]
    assert told == [(e.type, e.seq, e.version, e.span, e.mac) for e in rows]
    ids = {(e["run_id"], e["trace_id"], e["tenant"], e["request_id"]) for e in lines.events}
    assert ids == {(str(run.pk), run.trace_id, run.tenant_id, "req-8472")}
    assert (lines.missing, lines.doubled) == ((), 0)


def test_spans_are_numbered_as_the_seed_numbers_them(world: World, log: Path) -> None:
    run = refunded(world)
    spans = [(e.type, e.span) for e in Event.objects.filter(run=run).order_by("seq") if (e.span or "").startswith("t")]
    assert spans == [
        *[("tool.observed", f"t{n}") for n in (1, 2, 3, 4)], ("write.intent", "t5"), ("write.sent", "t5"),
        ("write.result", "t5"), ("write.verified", "t6"),
    ]  # fmt: skip


def test_why_from_logs_prints_the_same_sections_and_says_what_is_not_there(world: World, log: Path) -> None:
    run = refunded(world)
    told, rows = printed("--from-logs", str(log), "req-8472"), printed("req-8472")
    titles = ["What was read", "What the model proposed", "What the gate decided: a person must agree",
              "Who decided: ", "What was done: ", "How it was verified: passed",
              "What the customer was told"]  # fmt: skip
    assert [t in told for t in titles] == [t in rows for t in titles] == [True] * len(titles)
    assert "“not in the log”" in told and str(run.contract["goal"]) not in told
    found = json.loads(printed("--from-logs", str(log), run.trace_id, "--json"))
    assert (found["run_id"], found["log"]) == (str(run.pk), {"lines": run.last_seq, "missing": [], "doubled": 0})


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines()


def test_why_from_logs_names_gaps_and_leaves_doubles_out(world: World, log: Path, tmp_path: Path) -> None:
    run = refunded(world)
    kept = [text for text in lines_of(log) if '"seq": 7,' not in text and '"seq": 8,' not in text]
    one, other = tmp_path / "one.log", tmp_path / "other.log"
    one.write_text("\n".join(reversed(kept[: len(kept) // 2 + 3])))
    other.write_text("\n".join(f"web.1 | {text}" for text in kept[len(kept) // 2 :]))
    files = ("--from-logs", str(one), "--from-logs", str(other))
    told = json.loads(printed(*files, str(run.pk), "--json"))
    assert told["log"]["missing"] == [7, 8] and told["log"]["doubled"] > 0
    words = printed(*files, str(run.pk))
    assert "Lines are missing: 7-8; the story may be told wrongly." in words and "were left out" in words


def test_why_from_logs_refuses_lines_that_contradict(world: World, log: Path) -> None:
    run = refunded(world)
    intent = next(text for text in lines_of(log) if '"write.intent"' in text)
    mac = json.loads(intent)["mac"]
    log.write_text(log.read_text() + intent.replace(mac, "0" * 64) + "\n")
    with pytest.raises(CommandError, match="two lines say different things of event") as caught:
        printed("--from-logs", str(log), str(run.pk))
    assert caught.value.returncode == 1


FORGED: list[tuple[str, Json]] = [
    ("model.replied", {"seq": 10**13}), ("model.replied", {"at": []}), ("model.replied", {"trace_id": ["x"]}),
    ("run.stands", {"seq": "9999-99-99"}), ("run.stands", {"seq": 1e400}), ("run.stands", {"version": [1]}),
    ("run.stands", {"observed": [{"obs_id": 1.5}]}), ("run.stands", {"turn": {"span": {}}}),
    ("run.stands", {"turn": {"span": "m1", "at": "x", "route": "[/red]", "model": ["x"], "prompt": "p", "calls": [1],
                             "draft": False, "error": None}}),
    ("gate.decided", {"data": {"decision": [], "rule": ["x"], "decision_id": 1, "action_hash": [], "checks": [{}]}}),
    ("run.status", {"approvals": [{"id": "a"}]}), ("run.status", {"writes": [{"key": 1, "intent_at": "abc"}]}),
    ("decision.recorded", {"at": 7}), ("decision.recorded", {"approval_id": []}),
]  # fmt: skip


def test_why_from_logs_falls_over_no_forged_line(world: World, log: Path, tmp_path: Path) -> None:
    """A line that is not as we write it is passed over, or named; nothing of it is markup or moves a terminal."""
    refunded(world)
    lines, forged = lines_of(log), tmp_path / "forged.log"
    for event, changes in FORGED:
        at = next(n for n, text in enumerate(lines) if f'"event": "{event}"' in text)
        made = json.dumps({**json.loads(lines[at]), **changes}).replace("Infinity", "1e400")
        forged.write_text("\n".join((*lines[:at], made, *lines[at + 1 :])))
        try:
            assert "What was read" in printed("--from-logs", str(forged), "req-8472")
        except CommandError as error:
            assert "not as this release writes it" in str(error) and error.returncode == 1


def test_why_from_logs_writes_out_what_moves_a_terminal(world: World, log: Path) -> None:
    run = refunded(world)
    for word in ("issue_refund", "needs_approval", "confirmed", "obs_4", "sha256:", "refunds@3"):
        log.write_text(log.read_text().replace(word, f"\\u001b[2J[/red]{word}"))
    told = printed("--from-logs", str(log), str(run.pk))
    assert "\x1b" not in told and "[/red]obs_4" in told


def test_why_from_logs_passes_over_doubled_names_and_endless_lines(
    world: World, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = refunded(world)
    monkeypatch.setattr("runs.explain.lines.LONGEST", 20_000)
    sent = next(text for text in lines_of(log) if '"event": "write.sent"' in text)
    endless = "x" * 50_000 + sent
    log.write_text("\n".join((endless, *lines_of(log), sent.replace("{", '{"seq": 1, ', 1), endless)))
    assert json.loads(printed("--from-logs", str(log), str(run.pk), "--json"))["log"] == {
        "lines": run.last_seq, "missing": [], "doubled": 0,
    }  # fmt: skip


def test_why_from_logs_refuses_another_story_under_the_same_mac(world: World, log: Path) -> None:
    run = refunded(world)
    result = next(text for text in lines_of(log) if '"event": "write.result"' in text)
    log.write_text(log.read_text() + result.replace('"succeeded"', '"failed"') + "\n")
    with pytest.raises(CommandError, match="two lines say different things of event"):
        printed("--from-logs", str(log), str(run.pk))


def test_why_from_logs_says_that_a_run_is_not_there(log: Path) -> None:
    with pytest.raises(CommandError, match="no line of these logs has the run id") as caught:
        printed("--from-logs", str(log), "req-nobody")
    assert caught.value.returncode == 1
    with pytest.raises(CommandError, match="a log cannot be read: No such file"):
        printed("--from-logs", str(log.with_name("nothing")), "req-nobody")


def test_why_from_logs_reads_the_standard_input(world: World, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = world.start(script=s0())
    monkeypatch.setattr("sys.stdin", io.StringIO(log.read_text()))
    assert json.loads(printed("--from-logs", "-", str(run.pk), "--json"))["status"] == "awaiting_approval"
    assert world.refunds() == []
