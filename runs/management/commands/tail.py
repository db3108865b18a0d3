"""Door: `tail`, the calculator of many calls in a row: its worked example, numbers of one's own, or a recorded run."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.console import RenderableType
from rich.text import Text

from agentsite import dbtime
from agentsite.text import visible
from runs.management import output
from runs.management.base import SiteCommand
from runs.management.finding import find_run
from runs.measures import recorded, stages, tail
from runs.measures.stages import BadNumbers
from runs.measures.tail import Path, Slow, Stage, Tail

ROUNDED = "Rounded half up to what is shown; everything is calculated exactly."


class Command(SiteCommand):
    help = (
        "Calculate what many calls in a row do to a run's time: its path, what parallel reads save, the chance of a "
        "slow call and what one costs. Exit codes: 0 calculated, 1 no such run, 2 usage."
    )
    needs_database = False

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--example", action="store_true", help="the worked example of a refund (the default)")
        what.add_argument("--calls", metavar="N", help="so many calls in a row")
        what.add_argument("--stages", metavar="TEXT", help="such as 'o40 m1100:1910:120 t240|120': ms[:input[:output]]")
        what.add_argument("--run", metavar="RUN", help="a recorded run, by the site's own measured chance")
        parser.add_argument("--tenant", help="with --run: whose request it is")
        parser.add_argument("--slow", metavar="PERCENT", help="chance that a call is slow (default 2)")
        parser.add_argument("--cost", metavar="MS", help="what a slow call takes longer (default 2000)")
        parser.add_argument("--above", metavar="MS", help="with --run: a call longer than this was slow (default 2000)")
        parser.add_argument("--json", action="store_true", help="print the numbers as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            made, slow, measured = self._asked(options)
        except BadNumbers as error:
            raise CommandError(f"--{error.field}: {error}", returncode=2) from None
        path, found = tail.path(made, slow), tail.tail(made, slow)
        if options["json"]:
            return output.data(self.stdout, wire(made, path, found, measured))
        if measured is not None:
            self._say_measured(measured)
        if options["calls"] is None:
            output.show(self.stdout, _path(path, slow))
        output.show(self.stdout, _tail(found, "takes longer by" if options["calls"] is not None else "of runs"))
        return self.stdout.write(ROUNDED)

    def _asked(self, options: dict[str, Any]) -> tuple[tuple[Stage, ...], Slow, recorded.Measured | None]:
        example = tail.EXAMPLE_SLOW
        percent, cost = tail.shown(100 * example.chance, 0), str(example.cost_ms)
        given = stages.slow(_or(options["slow"], percent), _or(options["cost"], cost))
        if options["run"] is not None:
            return self._recorded(options, given)
        for name in ("above", "tenant"):
            if options[name] is not None:
                raise BadNumbers(name, "goes with --run alone")
        if options["calls"] is not None:
            return tail.serial(stages.calls(options["calls"])), given, None
        return (stages.parse(options["stages"]) if options["stages"] is not None else tail.EXAMPLE), given, None

    def _recorded(
        self, options: dict[str, Any], given: Slow
    ) -> tuple[tuple[Stage, ...], Slow, recorded.Measured]:  # fmt: skip
        above = stages.milliseconds("above", _or(options["above"], str(recorded.SLOW_MS)))
        run = find_run(options["run"], options["tenant"])
        measured = recorded.measure(dbtime.now(), tenants=[run.tenant_id], above_ms=above)
        site = measured.for_calculator
        slow = Slow(
            chance=site.chance if options["slow"] is None else given.chance,
            cost_ms=site.cost_ms if options["cost"] is None else given.cost_ms,
        )
        made = recorded.stages(run)
        if not tail.count(made):
            raise BadNumbers("run", "a run that called a model or a tool")
        return made, slow, measured

    def _say_measured(self, measured: recorded.Measured) -> None:
        part, whole = measured.slow.part, measured.slow.whole
        low, high = 100 * measured.slow.low, 100 * measured.slow.high
        self.stdout.write(
            f"Measured here, in {measured.runs:,} runs of the last 30 days: {part:,} of {whole:,} calls took more than "
            f"{measured.above_ms:,} ms (95 % between {low:.2f} % and {high:.2f} %)."
        )


def _or(given: str | None, otherwise: str) -> str:
    """What was given, also where that is nothing: then it is refused."""
    return otherwise if given is None else given


def _path(path: Path, slow: Slow) -> RenderableType:
    grid = output.grid(44, None)
    rows = [
        ("model calls", f"{path.model_ms:,} ms"), ("tools on the critical path", f"{path.tools_ms:,} ms"),
        ("overhead", f"{path.overhead_ms:,} ms"), ("active time", f"{path.path_ms:,} ms"),
        ("without parallel reads", f"{path.sequential_ms:,} ms"),
        (f"with one slow call (+{slow.cost_ms:,} ms) on the path", f"{path.one_slow_ms:,} ms"),
        ("times one model call", f"{tail.shown(path.times_one)} times"),
        ("input tokens", f"{path.input_tokens:,}"), ("output tokens", f"{path.output_tokens:,}"),
        ("times the input of one call", f"{tail.shown(path.times_input)} times"),
    ]  # fmt: skip
    for name, words in rows:
        grid.add_row(Text(name, style="dim"), visible(words))
    return grid


def _tail(found: Tail, words: str) -> RenderableType:
    grid = output.grid(44, None)
    percent, adds = tail.percent(found.slow.chance), tail.shown(found.expected_ms, 0)
    until = f"{found.until_p95:,} calls" if found.until_p95 is not None else "no number of calls"
    rows = [
        ("calls that can be slow", f"{found.calls:,}, each {percent}, by {found.slow.cost_ms:,} ms"),
        ("chance of at least one slow call", f"{tail.shown(100 * found.chance)} %"),
        ("slow from percentile", f"{tail.shown(found.slow_from)}"),
        ("95th percentile of runs", "has a slow call" if found.p95_is_slow else "has no slow call"),
        ("95th percentile is slow from", until), ("slow calls add on average", f"{adds} ms"),
        *((f"p{at} {words}", f"{'' if found.exact else 'at most '}{ms:,} ms") for at, ms in found.percentiles),
    ]  # fmt: skip
    for name, said in rows:
        grid.add_row(Text(name, style="dim"), said)
    return grid


def wire(made: tuple[Stage, ...], path: Path, found: Tail, measured: recorded.Measured | None) -> dict[str, Any]:
    """The numbers for programs: whole milliseconds, fractions as decimals, and the same as they are shown."""
    return {
        "stages": stages.text(made), "model_ms": path.model_ms, "tools_ms": path.tools_ms,
        "overhead_ms": path.overhead_ms, "path_ms": path.path_ms, "sequential_ms": path.sequential_ms,
        "one_slow_ms": path.one_slow_ms, "input_tokens": path.input_tokens, "output_tokens": path.output_tokens,
        "times_one_call": tail.shown(path.times_one) if path.times_one is not None else None,
        "times_input": tail.shown(path.times_input) if path.times_input is not None else None,
        "calls": found.calls, "slow_percent": float(100 * found.slow.chance), "cost_ms": found.slow.cost_ms,
        "chance": float(found.chance), "chance_percent": tail.shown(100 * found.chance),
        "slow_from_percentile": float(found.slow_from), "p95_is_slow": found.p95_is_slow,
        "p95_slow_from_calls": found.until_p95, "expected_extra_ms": float(found.expected_ms),
        "percentiles_ms": {f"p{at}": ms for at, ms in found.percentiles}, "exact": found.exact,
        "measured": None if measured is None else {
            "runs": measured.runs, "above_ms": measured.above_ms, "calls": measured.slow.whole,
            "slow": measured.slow.part, "low": measured.slow.low, "high": measured.slow.high,
            "cost_ms": measured.cost_ms,
        },
    }  # fmt: skip
