"""Door: the page of the tail calculator: asked by a GET, calculated by the server, drawn without a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from agentsite import dbtime
from agentsite.tenants.console import tenants_of
from runs.admin import curves, lists
from runs.measures import recorded, stages, tail, words
from runs.measures.stages import BadNumbers
from runs.measures.tail import Path, Slow, Stage, Tail
from runs.models import Run

if TYPE_CHECKING:
    from agentsite.tenants.console import ReadOnly

FIELDS = ("calls", "stages", "run", "slow", "cost")
EXAMPLE = {"stages": stages.text(tail.EXAMPLE), "slow": "2", "cost": "2000"}
MOST_DRAWN, LEAST_DRAWN = 400, 20
DAYS = 30


def page(owner: ReadOnly, request: HttpRequest) -> HttpResponse:
    """The worked example, or what was asked for; a fault names its field and calculates nothing."""
    if not owner.has_view_permission(request):
        raise PermissionDenied
    asked = {name: request.GET.get(name, "").strip() for name in FIELDS}
    given = asked if any(asked.values()) else {**asked, **EXAMPLE}
    context: dict[str, Any] = {
        **owner.admin_site.each_context(request), "opts": owner.opts, "subtitle": None, "title": "Tail calculator",
        "asked": given, "example": not any(asked.values()), "faults": {}, "measured": _measured(request),
    }  # fmt: skip
    try:
        made, slow = _read(owner, request, given)
        context |= _calculated(made, slow, alone=bool(given["calls"]))
    except BadNumbers as error:
        context["faults"] = {error.field: f"Expected {error}."}
    request.current_app = owner.admin_site.name
    status = 400 if context["faults"] else 200
    return TemplateResponse(request, "admin/runs/slo/tail.html", context, status=status)


def _measured(request: HttpRequest) -> dict[str, Any]:
    """What was measured of the tenants that this person sees, in words and as the form takes it."""
    found = recorded.measure(dbtime.now(), days=DAYS, tenants=tenants_of(request))
    slow = found.for_calculator
    return {
        "share": words.share(found.slow), "runs": found.runs, "calls": found.slow.whole,
        "above": words.time(found.above_ms),
        "slow": tail.percent(max(slow.chance, tail.LEAST_CHANCE) if slow.chance else slow.chance).removesuffix(" %"),
        "cost": str(slow.cost_ms), "cost_said": words.time(slow.cost_ms),
    }  # fmt: skip


def _read(owner: ReadOnly, request: HttpRequest, given: dict[str, str]) -> tuple[tuple[Stage, ...], Slow]:
    """Raises BadNumbers. One of calls, stages and run says what is calculated; the first that is filled in counts."""
    slow = stages.slow(given["slow"] or EXAMPLE["slow"], given["cost"] or EXAMPLE["cost"])
    if given["calls"]:
        return tail.serial(stages.calls(given["calls"])), slow
    if given["stages"]:
        return stages.parse(given["stages"]), slow
    if not given["run"]:
        return tail.EXAMPLE, slow
    made = recorded.stages(_run(owner, request, given["run"]))
    if not tail.count(made):
        raise BadNumbers("run", "a run that called a model or a tool")
    return made, slow


def _run(owner: ReadOnly, request: HttpRequest, term: str) -> Run:
    """A run that this person may see, by its id, trace or request."""
    found = None if "\0" in term else lists.exact(owner.get_queryset(request), term, tenants_of(request))
    run: Run | None = found.order_by("-created_at").first() if found is not None else None
    if run is None:
        raise BadNumbers("run", "a run, trace or request id that you can see")
    return run


def _calculated(made: tuple[Stage, ...], slow: Slow, *, alone: bool) -> dict[str, Any]:
    path, found = tail.path(made, slow), tail.tail(made, slow)
    drawn = min(MOST_DRAWN, max(LEAST_DRAWN, 2 * found.calls))
    values = tail.curve(slow.chance, drawn)
    return {
        "line": stages.text(made), "path": [] if alone else _path(path, slow), "tail": _tail(found, alone),
        "curve": curves.chance(values, min(found.calls, drawn), 1 - tail.P95), "calls": found.calls,
        "chance": f"{tail.shown(100 * found.chance)} %",
        "points": [(n, f"{tail.shown(100 * values[n])} %") for n in (1, 2, 3, 5, 10, 20) if n < len(values)],
    }  # fmt: skip


def _path(path: Path, slow: Slow) -> list[tuple[str, str]]:
    return [
        ("Active time", f"{path.path_ms:,} ms"), ("Model calls", f"{path.model_ms:,} ms"),
        ("Tools, on the critical path", f"{path.tools_ms:,} ms"), ("Overhead", f"{path.overhead_ms:,} ms"),
        ("Without parallel reads", f"{path.sequential_ms:,} ms"),
        (f"With one slow call of {slow.cost_ms:,} ms more", f"{path.one_slow_ms:,} ms"),
        ("Compared with one model call", f"{tail.shown(path.times_one)} times as long"),
        ("Input tokens", f"{path.input_tokens:,}"), ("Output tokens", f"{path.output_tokens:,}"),
        ("Compared with the input of one call", f"{tail.shown(path.times_input)} times"),
    ]  # fmt: skip


def _tail(found: Tail, alone: bool) -> list[tuple[str, str]]:
    until = f"{found.until_p95:,} calls" if found.until_p95 is not None else "never"
    at_most = "" if found.exact else "at most "
    what = "takes longer by" if alone else "of runs"
    return [
        ("Calls that can be slow", f"{found.calls:,}"),
        ("At least one of them is slow", f"{tail.shown(100 * found.chance)} %"),
        ("A slow call is part of runs from the percentile", tail.shown(found.slow_from)),
        ("The 95th percentile", "has a slow call" if found.p95_is_slow else "has no slow call"),
        ("The 95th percentile is slow from", until),
        ("Slow calls add on average", f"{tail.shown(found.expected_ms, 0)} ms"),
        *((f"p{at} {what}", f"{at_most}{ms:,} ms") for at, ms in found.percentiles),
    ]  # fmt: skip
