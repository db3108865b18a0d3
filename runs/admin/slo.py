"""Door: the page of service levels and the page that sets a tenant's objective. Reads rows; `runs.measures` decides.

Bounded: the newest runs alone are looked at where there are very many, and the page says so. Nobody sees a tenant that
is not his.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.validators import DecimalValidator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from agentsite import dbtime, env, prices
from agentsite.prices import ModelPrice, PriceTable
from agentsite.tenants.console import staff, tenants_of
from agentsite.tenants.models import Objective, Tenant
from agentsite.text import visible
from runs.admin import curves
from runs.measures import caps, objectives, report, setting, words
from runs.measures.figures import Figures
from runs.measures.report import Report

if TYPE_CHECKING:
    from agentsite.tenants.console import ReadOnly

PERMISSION = "tenants.change_objective"
MOST_RUNS = 10_000
DAYS = (1, 7, 30, 90)
MOST_NAMED = 200


def page(owner: ReadOnly, request: HttpRequest) -> HttpResponse:
    """Everything of the tenants that this person may see, or of one of them."""
    _may_look(owner, request)
    seen, chosen, days = tenants_of(request), request.GET.get("tenant", ""), _days(request.GET.get("days", ""))
    names = _names(seen)
    if chosen and chosen not in names and not _exists(chosen, seen):
        raise Http404("there is no such tenant")
    tenants = [chosen] if chosen else None if seen is None else sorted(seen)
    made = report.make(dbtime.now(), days=days, tenants=tenants, most=MOST_RUNS)
    context = {
        **owner.admin_site.each_context(request), **_shown(made), "opts": owner.opts, "subtitle": None,
        "title": "Service levels", "names": names, "chosen": chosen, "days": days, "day_choices": DAYS,
        "may_set": may_set(request),
    }  # fmt: skip
    request.current_app = owner.admin_site.name
    return TemplateResponse(request, "admin/runs/slo/page.html", context)


def _may_look(owner: ReadOnly, request: HttpRequest) -> None:
    if not owner.has_view_permission(request):
        raise PermissionDenied


def may_set(request: HttpRequest) -> bool:
    return staff(request).has_perm(PERMISSION)


def _days(given: str) -> int:
    return int(given) if given.isascii() and given.isdigit() and len(given) < 3 and int(given) in DAYS else 30


def _names(seen: set[str] | None) -> list[str]:
    rows = Tenant.objects.all() if seen is None else Tenant.objects.filter(pk__in=seen)
    return list(rows.order_by("pk").values_list("pk", flat=True)[:MOST_NAMED])


def _exists(tenant_id: str, seen: set[str] | None) -> bool:
    mine = seen is None or tenant_id in seen
    return mine and "\0" not in tenant_id and Tenant.objects.filter(pk=tenant_id).exists()


def _shown(made: Report) -> dict[str, Any]:
    return {
        "report": made, "caveats": list(words.caveats(made)), "read": words.READ, "columns": words.COLUMNS,
        "ends": [(name.capitalize(), words.share(share)) for name, share in words.ends(made.whole)],
        "beside": words.beside(made.whole), "used": list(words.used(made.whole)),
        "groups": [(g.by, [(name, words.line(f)) for name, f in g.rows], g.left_out) for g in made.groups],
        "promises": [(p, words.promised(p)) for p in made.promises],
        "caps": [(a, [(caps.NAMES[c.name], words.cap(c, a.currency), c.successes) for c in a.table])
                 for a in made.caps],
        "trend": curves.days(list(_days_of(made))) if made.trend else (),
        "most_capped": words.percent(max((Fraction(d.capped, d.runs) for d in made.trend), default=Fraction(0))),
        "prices": list(_prices(env.read().MODEL_PRICES, made.whole)),
    }  # fmt: skip


def _days_of(made: Report) -> Iterator[tuple[str, int, int]]:
    """(day, runs, those that hit a cap), days without a run among them."""
    known = {d.day: (d.runs, d.capped) for d in made.trend}
    first, last = made.since.astimezone(UTC).date(), made.at.astimezone(UTC).date()
    for n in range((last - first).days + 1):
        day = (first + timedelta(days=n)).isoformat()
        yield day, *known.get(day, (0, 0))


# --- prices ------------------------------------------------------------------------------------------------------


def _prices(table: PriceTable | None, whole: Figures) -> list[tuple[str, str, str, str, str]]:
    """(model, input, from cache, output, a run of the median tokens), the cheapest such run first."""
    if table is None:
        return []
    tokens = whole.used["input_tokens"].p50, whole.used["output_tokens"].p50
    costed = sorted((_median(table, price, *tokens), name, price) for name, price in list(table.models.items())[:100])
    return [
        (name, p.input, p.input if p.cached is None else p.cached, p.output,
         words.amount(cost, table.currency) if tokens[0] is not None else words.NOTHING)
        for cost, name, p in costed
    ]  # fmt: skip


def _median(table: PriceTable, price: ModelPrice, tokens_in: int | None, tokens_out: int | None) -> int:
    """Micro-units, nothing read from a cache: what such a run costs at most."""
    one = PriceTable(currency=table.currency, models={"it:self": price})
    cost = prices.cost_micros(one, "it:self", "", input=tokens_in or 0, cached=0, output=tokens_out or 0)
    assert cost is not None, "this model has a price"
    return cost


# --- objectives --------------------------------------------------------------------------------------------------


class Form(forms.Form):
    """What is promised to a tenant. Each fault names its field."""

    success_percent = forms.DecimalField(
        label="Runs that must not fail, in percent", validators=[DecimalValidator(5, 2)],
        help_text="above 0 and below 100: what is always met, or never, is no objective",
    )  # fmt: skip
    latency_percent = forms.DecimalField(
        label="Of those, how many must be fast, in percent", validators=[DecimalValidator(5, 2)],
        help_text="above 0 and below 100",
    )  # fmt: skip
    latency_ms = forms.IntegerField(
        label="What fast is: milliseconds of active time", min_value=1, max_value=2_147_483_647,
        help_text="waiting for people counts as none",
    )  # fmt: skip
    window_days = forms.IntegerField(
        label="Over how many days", min_value=1, max_value=objectives.MOST_DAYS, help_text="from 1 to 90"
    )

    def clean_success_percent(self) -> Any:
        return _inside(self.cleaned_data["success_percent"])

    def clean_latency_percent(self) -> Any:
        return _inside(self.cleaned_data["latency_percent"])


def _inside(value: Any) -> Any:
    if not 0 < value < 100:
        raise forms.ValidationError("It must be above 0 and below 100.")
    return value


def objective(owner: ReadOnly, request: HttpRequest, tenant_id: str) -> HttpResponse:
    """One tenant's objective: what it is, who set it, and a form. The GET changes nothing; the POST sets it."""
    _may_look(owner, request)
    tenant = Tenant.objects.filter(pk=tenant_id).first() if _exists(tenant_id, tenants_of(request)) else None
    if tenant is None:
        raise Http404("there is no such tenant")
    if not may_set(request):
        raise PermissionDenied
    row = Objective.objects.filter(pk=tenant_id).first() or Objective(tenant=tenant)
    form = Form(request.POST) if request.method == "POST" else Form(initial=_initial(row))
    if request.method == "POST" and form.is_valid():
        _set(owner, request, tenant, form)
        return HttpResponseRedirect(reverse("admin:runs_run_slo"))
    context = {
        **owner.admin_site.each_context(request), "opts": owner.opts, "subtitle": None, "form": form, "row": row,
        "tenant": tenant, "title": f"Objective of {visible(tenant.pk)}",
    }  # fmt: skip
    request.current_app = owner.admin_site.name
    return TemplateResponse(request, "admin/runs/slo/objective.html", context, status=400 if form.errors else 200)


def _initial(row: Objective) -> dict[str, Any]:
    return {
        "success_percent": words.points(Fraction(row.success_percent) / 100).removesuffix(" %"),
        "latency_percent": words.points(Fraction(row.latency_percent) / 100).removesuffix(" %"),
        "latency_ms": row.latency_ms, "window_days": row.window_days,
    }  # fmt: skip


def _set(owner: ReadOnly, request: HttpRequest, tenant: Tenant, form: Form) -> None:
    wanted = setting.Wanted(**form.cleaned_data)
    if not setting.put(tenant.pk, wanted, by=staff(request).get_username()):
        messages.info(request, "It was so already; nothing changed.")
        return
    told = f"{wanted.success_percent} % do not fail, {wanted.latency_percent} % within {wanted.latency_ms} ms"
    owner.log_change(request, tenant, f"Objective: {told}, over {wanted.window_days} days")
    messages.success(request, f"The objective of {tenant.pk} is set.")
