"""Door: `why`, the causal story of a run's decisions. Renders what `runs.explain` tells; asks nothing live."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from django.core.management.base import CommandError, CommandParser
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsite.clock import parse_rfc3339
from agentsite.text import visible
from approvals import labels
from runs import explain
from runs.explain.lines import Lines, Opened
from runs.explain.values import Answered, Asked, Explanation, Gated, Proposed, Wrote
from runs.management import output
from runs.management.base import SiteCommand
from runs.management.finding import find_run
from runs.management.timeline import action, quoted, spoken

STDIN = "-"


class Command(SiteCommand):
    help = (
        "Tell why a run refunded, or why it did not, from its record alone: evidence, checks with their numbers, "
        "approver, hash, key, verification. Exit codes: 0 told, 1 no such run or lines that contradict, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", metavar="RUN", help="a run id, a request id or a trace id")
        parser.add_argument("--tenant", help="whose request it is, where several tenants have one of this name")
        parser.add_argument("--json", action="store_true", help="print the whole story as one line of JSON")
        parser.add_argument(
            "--without-words", action="store_true",
            help="leave out what people and models wrote: what remains is in the log, too, and is the same there",
        )  # fmt: skip
        parser.add_argument(
            "--from-logs", metavar="FILE", action="append", default=[],
            help="tell it from log lines alone, without a database; - is the standard input; may be given repeatedly",
        )  # fmt: skip

    def execute(self, *args: Any, **options: Any) -> str | None:
        self.needs_database = not options["from_logs"]
        return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        lines = self._lines(options) if options["from_logs"] else None
        found = _told(lines) if lines else explain.explain(explain.read(find_run(options["run"], options["tenant"])))
        if options["without_words"]:
            found = found.without_words()
        if options["json"]:
            return output.data(self.stdout, found.wire() | ({"log": _log(lines)} if lines else {}))
        try:
            parts = list(_parts(found))
        except explain.BROKEN as error:
            if lines is None:
                raise
            raise CommandError(str(explain.not_as_written(error))) from None
        self._tell(found, parts)
        words = _completeness(lines) if lines else ""
        return self.stdout.write(words) if words else None

    def _lines(self, options: Mapping[str, Any]) -> Lines:
        try:
            with _opened(options["from_logs"]) as logs:
                return explain.find_lines(logs, options["run"], options["tenant"])
        except explain.NotTold as not_told:
            raise CommandError(str(not_told), returncode=2 if not_told.usage else 1) from None
        except OSError as error:
            raise CommandError(f"a log cannot be read: {error.strerror}: {error.filename}") from None

    def _tell(self, found: Explanation, parts: Sequence[RenderableType]) -> None:
        for part in parts:
            output.show(self.stdout, part)
        good = found.outcome in ("refunded", "no_refund_due", "answered")
        return output.framed(self.stdout, found.answer, title="In short", style="green" if good else "yellow")


@contextmanager
def _opened(files: Sequence[str]) -> Iterator[list[Opened]]:
    """Each log to be read as often as needed; what comes by the standard input is put aside for that."""
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as aside:
        if STDIN in files:
            shutil.copyfileobj(sys.stdin, aside)
        yield [partial(_again, aside) if file == STDIN else partial(_read, file) for file in dict.fromkeys(files)]


@contextmanager
def _again(aside: IO[str]) -> Iterator[IO[str]]:
    aside.seek(0)
    yield aside


def _read(file: str) -> IO[str]:
    return Path(file).open(encoding="utf-8", errors="replace")


def _told(lines: Lines) -> Explanation:
    try:
        return explain.explain_lines(lines)
    except explain.NotTold as not_told:
        raise CommandError(str(not_told)) from None


def _log(lines: Lines) -> dict[str, Any]:
    return {"lines": len(lines.events), "missing": list(lines.missing), "doubled": lines.doubled}


def _completeness(lines: Lines) -> str:
    """What the log lacks, or says twice, so that nobody takes half a story for the whole."""
    gap = f"Lines are missing: {_spans(lines.missing)}; the story may be told wrongly. " if lines.missing else ""
    return gap + (f"{lines.doubled} lines stood there twice and were left out." if lines.doubled else "")


def _spans(numbers: Sequence[int]) -> str:
    """Numbers with their runs as one: 3, 5-9."""
    told = list[list[int]]()
    for number in numbers:
        if told and number == told[-1][-1] + 1:
            told[-1][1:] = [number]
        else:
            told.append([number])
    return ", ".join("-".join(map(str, one)) for one in told)


def _parts(found: Explanation) -> Iterator[RenderableType]:
    yield _head(found)
    for title, body in _sections(found):
        yield output.heading(f"\n{title}")
        yield body
    yield ""


def _sections(found: Explanation) -> Iterator[tuple[str, RenderableType]]:
    yield "What was read", _reads(found)
    yield "What the model proposed", _proposals(found)
    for gated in found.gate:
        yield f"What the gate decided: {_verdict(gated)}", _checks(gated, archived=bool(found.archived))
    for asked in found.approvals:
        yield f"Who decided: {labels.status(asked.status).lower()}", _asked(asked)
    for wrote in found.writes:
        yield f"What was done: {labels.WRITE.get(wrote.state, spoken(wrote.state)).lower()}", _wrote(wrote)
        if wrote.verification:
            yield f"How it was verified: {spoken(wrote.verification.get('verdict'))}", _verified(wrote.verification)
    if found.reply:
        yield "What the customer was told", Text(visible_lines(found.reply))
    elif found.customer_message:
        yield "What the customer may be told now", Text(visible_lines(found.customer_message))


def visible_lines(text: str) -> str:
    """Several lines of somebody's words, each with its invisible characters written out."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _head(found: Explanation) -> RenderableType:
    ended = f" · {spoken(found.outcome)}" if found.outcome else ""
    why = f" ({spoken(found.reason)})" if found.reason else ""
    grid = output.grid(9, None)
    grid.add_row(Text("request", style="dim"), Text(visible(found.request_id), style="bold"))
    grid.add_row(Text("status", style="dim"), Text(f"{labels.run_status(found.status)}{ended}{why}"))
    grid.add_row(Text("asked", style="dim"), Text(quoted(found.goal)))
    grid.add_row(Text("by", style="dim"), Text(_actor(found)))
    grid.add_row(Text("run", style="dim"), Text(f"{found.run_id}  trace {found.trace_id}"))
    grid.add_row(Text("made with", style="dim"), Text(_versions(found.versions)))
    if found.erased:
        gone = ", ".join(f"{kind} on {_moment(at)}" for kind, at in found.erased.items())
        grid.add_row(Text("erased", style="dim"), Text(gone, style="yellow"))
    if found.archived:
        grid.add_row(Text("archived", style="dim"), Text(_archived(found), style="yellow"))
    return grid


def _archived(found: Explanation) -> str:
    where = visible(f"{found.archived['folder']}/{found.archived['file']}")
    what = "checks with their numbers, answers of models, texts of policies"
    return f"on {_moment(found.archived['at'])} in {where}: {what}; `archive --restore {found.run_id}` brings them back"


def _actor(found: Explanation) -> str:
    more = [f"{name} {found.actor[key]}" for key, name in (("session_id", "session"), ("channel", "by"))
            if found.actor.get(key)]  # fmt: skip
    who = ", ".join([f"customer {found.actor.get('customer_id')}", *more])
    return visible(f"{who}; sent by {found.asked_by} for tenant {found.tenant_id} on {_moment(found.created_at)}")


def _versions(versions: Mapping[str, Any]) -> str:
    named = [f"{name} {visible(str(versions[name]))}" for name in ("model", "prompt", "policy", "release")
             if versions.get(name)]  # fmt: skip
    return ", ".join(named)


def _moment(text: str) -> str:
    return labels.moment(parse_rfc3339(text))


def _reads(found: Explanation) -> RenderableType:
    table = output.table("", "", "source", "fact", "age at the decision")
    for one in found.reads:
        bad = one.kind in ("error", "denial")
        age = f"{one.age_s:.1f} s" if one.age_s is not None and one.age_s < 100 else "later"
        if one.age_s is not None and one.age_s >= 100:
            age = labels.duration(one.age_s)
        fact = Text(one.fact, style="red" if bad else "")
        table.add_row(_shown(one.obs_id), _shown(one.span), _shown(one.source), fact, age)
    return table


def _proposals(found: Explanation) -> RenderableType:
    table = output.table("", "model", "prompt", "what it said")
    for one in found.proposals:
        table.add_row(_shown(one.span), _shown(one.model or one.route), _shown(one.prompt), Text(_said(one)))
    return table


def _shown(words: str) -> Text:
    """What somebody else named, as it stands there: no markup."""
    return Text(visible(words))


def _said(one: Proposed) -> str:
    if one.error:
        return f"nothing that could be used: {spoken(one.error)}"
    if one.draft is not None:
        return f"a reply: {quoted(one.draft)}"
    return "; ".join(_call(call) for call in one.calls) or "nothing"


def _call(call: Mapping[str, Any]) -> str:
    tool, args = str(call["tool"]), call["args"]
    if "amount" in args:
        cited = ", ".join(map(str, call.get("evidence", ()))) or "nothing"
        return f"{action(tool, args)} ({visible(str(args.get('reason', '')))}), citing {visible(cited)}"
    return f"{visible(tool)} {labels.value(' '.join(map(str, args.values())))}"


def _verdict(gated: Gated) -> str:
    words = {"allow": "allowed", "needs_approval": "a person must agree", "deny": "denied"}
    currency = str((gated.action.get("args", {}).get("amount") or {}).get("currency", ""))
    return f"{words.get(gated.decision, spoken(gated.decision))}. {labels.rule(gated.rule, currency)}"


def _checks(gated: Gated, *, archived: bool) -> RenderableType:
    if gated.erased:
        gone = "are in the archive" if archived else "were erased on request"
        return Text(f"its numbers {gone}; the hash of them remains", style="dim")
    currency = str((gated.action.get("args", {}).get("amount") or {}).get("currency", ""))
    table, before = output.table("", "check", "its numbers"), ""
    for check in gated.checks:
        sign = Text("✓", style="green") if check.get("ok") is True else Text("✗", style="bold red")
        words = " · ".join(f"{name} {value}" for name, value in labels.numbers(check.get("inputs") or {}, currency))
        numbers = "the same" if words and words == before else words
        table.add_row(sign, Text(labels.check(str(check.get("name")))), Text(numbers, style="dim"))
        before = words
    return table


def _asked(asked: Asked) -> RenderableType:
    grid = _pairs()
    grid.add_row("question", Text(f"{visible(asked.approval_id)}, asked on {_moment(asked.requested_at)}"))
    grid.add_row("action", _shown(asked.action_hash))
    grid.add_row("needs", Text("two different people" if asked.required == 2 else "one person"))
    for one in asked.decisions:
        grid.add_row("decided", Text(_decision(one), style="green" if one.decision == "approve" else "red"))
    for one in asked.turned_down:
        grid.add_row("turned down", Text(f"{_decision(one)} ({spoken(one.refusal)})", style="yellow"))
    if asked.void_reason:
        grid.add_row("void", Text(spoken(asked.void_reason)))
    return grid


def _decision(one: Answered) -> str:
    said = {"approve": "approved", "reject": "rejected"}.get(one.decision, "tried to decide")
    why = f", saying {quoted(one.reason)}" if one.reason else ""
    return f"{visible(one.by)} {said} on {_moment(one.at)}{why}"


def _pairs() -> Table:
    grid = output.grid(12, None)
    grid.columns[0].style = "dim"
    return grid


def _wrote(w: Wrote) -> RenderableType:
    grid = _pairs()
    refund = f"refund {visible(w.refund_id)} {spoken(w.refund_state)}" if w.refund_id else "no refund known"
    grid.add_row("write", Text(f"{labels.value(w.amount)} to {visible(w.payment_id)} on order {visible(w.order_id)}"))
    grid.add_row("key", Text(visible(w.key)))
    grid.add_row("action", _shown(w.action_hash))
    grid.add_row("intent", Text(f"{_moment(w.intent_at)}, before anything was sent"))
    for one in w.attempts:
        sent = f"sent {_moment(one.sent_at)}" if one.sent_at else "prepared, never sent"
        answer = f"; settled {_moment(one.answered_at)} ({visible(one.answer)})" if one.answered_at else ""
        grid.add_row(f"attempt {one.number}", Text(sent + answer))
    _add_looks(grid, w)
    grid.add_row("result", Text(refund))
    return grid


def _add_looks(grid: Table, w: Wrote) -> None:
    for look in w.look_ups:
        words = spoken(str(look["type"]).partition(".")[2])
        found = " ".join(visible(str(look[k])) for k in ("error", "refund_id", "state") if look.get(k))
        grid.add_row("looked up", Text(f"{_moment(look['at'])}: {words} {found}".strip()))


def _verified(seen: Mapping[str, Any]) -> RenderableType:
    expected, found = seen.get("expected") or {}, seen.get("found") or {}
    table = output.table("", "asked", "found")
    for name in ("refund_id", "payment_id", "order_id", "amount", "state", "idempotency_key"):
        table.add_row(
            Text(spoken(name), style="dim"), Text(labels.value(expected.get(name))), Text(labels.value(found.get(name)))
        )
    return table
