"""Door: what an evaluation tells people in the terminal and programs as JSON. Reads no row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from agentsite.text import visible
from runs.evaluation.comparing import Compared
from runs.evaluation.wording import KINDS, PERCENTILES, SHARES, TIMES, cost, happened, interval, percent, placed, tokens
from runs.evaluations import Result
from runs.management import output

Json = dict[str, Any]
MOST_FAILED = 40


@dataclass(frozen=True, kw_only=True)
class Qualified:
    """`made` is the qualification's id, `refused` says why there is none; neither: none was asked for."""

    made: int | None = None
    refused: str = ""


def wire(result: Result) -> Json:
    hashes = {
        "suite": result.suite_hash, "scorer": result.scorer_hash, "prompt": result.prompt_hash,
        "tools": result.tools_hash, "code": result.code_hash,
    }  # fmt: skip
    return {
        "suite": result.suite, "route": result.route, "answered": list(result.answered), "setup": result.setup,
        "passed": not result.failing, "failing": list(result.failing), "thresholds": dict(result.thresholds),
        "figures": dict(result.figures), "hashes": hashes, "cases": [dict(case) for case in result.cases],
    }  # fmt: skip


def parts(result: Result, compared: Compared | None) -> Iterator[RenderableType]:
    """Tables, widest question first."""
    yield _shares(result)
    yield ""
    yield _sums(result)
    yield ""
    yield _tags(result)
    failed = [case for case in result.cases if case["kind"] != "success"]
    if failed:
        yield ""
        yield _failed(failed[:MOST_FAILED], len(failed))
    if compared is not None:
        yield ""
        yield Text(difference(compared))


def _shares(result: Result) -> Table:
    table = output.table("", "count", "share", "95 % interval", title=f"{result.suite} on {visible(result.route)}")
    for name, words in SHARES.items():
        one = result.figures[name]
        table.add_row(words, f"{one['count']} of {one['of']}", percent(one["share"]), interval(one))
    return table


def _sums(result: Result) -> Table:
    found = result.figures
    table = output.table("", *PERCENTILES)
    for name, words in TIMES.items():
        table.add_row(words, *(placed(found[name][p]) for p in PERCENTILES if found[name]))
    table.add_row("tokens", tokens(found))
    table.add_row("model calls", str(found["model_calls"]))
    table.add_row("cost", cost(found))
    return table


def _tags(result: Result) -> Table:
    table = output.table("by tag", "cases", "as expected", "95 % interval", "forbidden", "untrue", "to staff")
    for tag, one in result.figures["by_tag"].items():
        good = one["success"]
        counts = [str(one[name]["count"]) for name in ("forbidden", "lies", "escalation")]
        table.add_row(tag, str(one["cases"]), percent(good["share"]), interval(good), *counts)
    return table


def _failed(cases: list[Mapping[str, Any]], count: int) -> Table:
    table = output.table("scenario", "what it was", "expected, and what happened", title=f"{count} not as expected")
    for case in cases:
        table.add_row(f"{case['id']} ({case['tenant']})", KINDS[case["kind"]], visible(happened(case)))
    return table


def difference(compared: Compared) -> str:
    """What changed since the last one, in a sentence or three."""
    if compared.incomparable:
        return f"The last one stored: {compared.incomparable}."
    rose = f"{100 * compared.rose:+.1f} points ({100 * compared.low:+.1f} to {100 * compared.high:+.1f})"
    said = [f"Since the last one: as expected {rose}; by chance alone with probability {compared.chance:.2f}."]
    for words, names in (("Newly failing", compared.newly_failing), ("Newly passing", compared.newly_passing)):
        said += [f"{words}: {', '.join(names)}."] if names else []
    return "\n".join(said)


def lines(result: Result, stored: int | None, qualified: Qualified) -> Iterator[str]:
    """The verdict, with rich's markup."""
    if any(case["kind"] != "success" for case in result.cases):
        yield "[dim]Look at one: run it again with --only ID --keep DIR, which keeps its record, story and logs.[/dim]"
    if stored is not None:
        yield f"[dim]stored as evaluation {stored}[/dim]"
    if qualified.made is not None:
        route = escape(visible(result.route))
        yield f"[green]✓[/green] {route} may propose writes for {result.agent}, until prompt or tools change"
    if not result.failing:
        yield "[green]✓[/green] thresholds are met"
