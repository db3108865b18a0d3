"""Door: evaluations of model routes to look at: figures, thresholds, hashes, the cases that were not as expected.

Read-only, and of no tenant: whoever may view them sees all. They are made by `manage.py evaluate`.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from agentsite.tenants.console import ReadOnly
from agentsite.text import visible
from approvals import labels
from runs.evaluation import wording
from runs.models import Evaluation

MOST_SHOWN = 200
SETUPS = {"E": "embedded", "P": "PostgreSQL and Redis"}


@admin.register(Evaluation)
class EvaluationAdmin(ReadOnly):
    """The list, newest first, and one evaluation whole."""

    list_display = ("named", "verdict", "route_shown", "expected", "harmful", "release", "ended")
    list_filter = ("passed", "suite")
    search_fields = ("^route", "^answered_model", "^suite")
    search_help_text = "Route, model or suite"
    ordering = ("-ended_at", "-id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return admin.ModelAdmin.get_queryset(self, request).defer("cases").select_related("qualification")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One evaluation: what was measured, against what, and what went wrong."""
        row: Evaluation = self.seen_or_404(request, object_id)
        context = {
            **self.admin_site.each_context(request), **_page(row), "opts": self.opts, "subtitle": None,
            "title": f"Evaluation {row.pk}",
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/runs/evaluation/figures.html", context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """An evaluation never changes: its page is its history."""
        row = self.seen_or_404(request, object_id)
        return HttpResponseRedirect(reverse("admin:runs_evaluation_change", args=[row.pk]))

    @admin.display(description="suite", ordering="suite")
    def named(self, row: Evaluation) -> str:
        return visible(row.suite)

    @admin.display(description="thresholds", ordering="passed")
    def verdict(self, row: Evaluation) -> str:
        tone, words = ("good", "Met") if row.passed else ("bad", "Not met")
        return format_html('<span class="badge badge-{}">{}</span>', tone, words)

    @admin.display(description="route", ordering="route")
    def route_shown(self, row: Evaluation) -> str:
        return visible(row.route)

    @admin.display(description="as expected")
    def expected(self, row: Evaluation) -> str:
        one = row.figures["success"]
        return f"{one['count']} of {one['of']} ({wording.interval(one)})"

    @admin.display(description="forbidden, untrue")
    def harmful(self, row: Evaluation) -> str:
        return f"{row.figures['forbidden']['count']}, {row.figures['lies']['count']}"

    @admin.display(description="ended", ordering="ended_at")
    def ended(self, row: Evaluation) -> str:
        at = row.ended_at
        return format_html('<time datetime="{}">{}</time>', at.isoformat(), labels.moment(at))


def _page(row: Evaluation) -> dict[str, Any]:
    found, failed = row.figures, [case for case in row.cases if case["kind"] != "success"]
    return {
        "row": row, "setup": SETUPS.get(row.setup, row.setup), "shares": list(_shares(found)), "times": _times(found),
        "cost": wording.cost(found), "tokens": wording.tokens(found), "calls": found["model_calls"],
        "tags": [(tag, _share(one["success"], tag), one) for tag, one in found["by_tag"].items()],
        "failed": [_case(case) for case in failed[:MOST_SHOWN]], "failed_count": len(failed),
        "hashes": [(name, getattr(row, f"{name}_hash")) for name in ("suite", "scorer", "prompt", "tools", "code")],
        "whole": found.get("whole", True), "rounds": found.get("rounds", 1),
    }  # fmt: skip


def _shares(found: dict[str, Any]) -> Any:
    return (_share(found[name], words) for name, words in wording.SHARES.items())


def _share(one: dict[str, Any], words: str) -> dict[str, str]:
    return {
        "words": words, "count": f"{one['count']} of {one['of']}", "share": wording.percent(one["share"]),
        "interval": wording.interval(one),
    }  # fmt: skip


def _times(found: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (words, [(p, wording.placed(found[name][p])) for p in wording.PERCENTILES if found[name]])
        for name, words in wording.TIMES.items()
    ]


def _case(case: dict[str, Any]) -> dict[str, Any]:
    tone = "bad" if case["kind"] in ("forbidden", "lie") else "wait"
    return {"case": case, "kind": wording.KINDS[case["kind"]], "tone": tone, "said": wording.happened(case)}
