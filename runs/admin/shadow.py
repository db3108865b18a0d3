"""Door: proposals of shadow mode beside what staff did, and the page of a tenant where its shadow mode begins or ends.

Rows are read-only; a change is a POST with a reason, which the floor records with the figures of that moment (M110).
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from agentsite.refusals import Refusal
from agentsite.tenants import shadowing
from agentsite.tenants.console import ReadOnly, TenantFilter, staff, tenants_of
from agentsite.tenants.models import Tenant
from agentsite.text import visible
from approvals import labels
from runs.admin.board import Number
from runs.models import Shadow
from runs.models.measured import VERDICTS
from runs.store import shadows

LEAVE, PAUSE = "runs.leave_shadow", "runs.pause_tenant"
SHOWN = 50
NAMES = {
    "agree": "Agrees", "overreach": "Overreaches", "miss": "Misses", "unclear": "Cannot be told",
    "open": "Not compared yet",
}  # fmt: skip
TONES = {"agree": "good", "overreach": "bad", "miss": "wait", "unclear": "plain", "open": "plain"}


def name(verdict: str) -> str:
    return NAMES.get(verdict, labels.spoken(verdict))


def proposed(row: Shadow) -> str:
    """What the agent would have done, in words."""
    found = shadows.proposal(row.proposed)
    return f"{found.amount} to {visible(found.payment_id)}" if found else "no refund"


def did(row: Shadow) -> str:
    """What staff did, in words; a dash while nobody looked."""
    if row.staff is None:
        return "–"
    made = [f"{labels.value(r['amount'])} to {visible(r['payment_id'])}" for r in row.staff["refunds"]]
    return ", ".join(made) or ("–" if row.verdict == "unclear" else "no refund")


def why(row: Shadow) -> str:
    return labels.spoken(row.staff["why"]) if row.staff else ""


@admin.register(Shadow)
class ShadowAdmin(ReadOnly):
    """Proposals, newest first, each beside what staff did; and one page a tenant."""

    change_list_template = "admin/runs/change_list.html"
    list_display = ("request", "verdict_named", "proposal", "staff_did", "tenant_name", "ended")
    list_filter = ("verdict", TenantFilter)
    search_fields = ("^run__request_id",)
    search_help_text = "Request id"
    ordering = ("-at", "pk")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Shadow]:
        return lean(super().get_queryset(request))

    def get_urls(self) -> list[URLPattern]:
        one = path("of/<slug:tenant_id>/", self.admin_site.admin_view(self.tenant_view), name="runs_shadow_tenant")
        return [one, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        says = (
            "Of runs in shadow mode: what the agent proposed, and what staff did. A tenant's own page has its figures."
        )
        return super().changelist_view(request, {"view_says": says, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A proposal stands on the page of its run."""
        row = self.seen_or_404(request, object_id)
        return HttpResponseRedirect(reverse("admin:runs_run_change", args=[row.pk]) + "#shadow")

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return self.change_view(request, object_id)

    # --- one tenant ---

    def tenant_view(self, request: HttpRequest, tenant_id: str) -> HttpResponse:
        """Where a tenant stands and what its proposals came to. A POST with a reason begins or ends shadow mode."""
        tenant, status = self._tenant(request, tenant_id), 200
        if request.method == "POST":
            refused = self._turn(request, tenant)
            if refused is None:
                return HttpResponseRedirect(reverse("admin:runs_shadow_tenant", args=[tenant.pk]))
            status = refused.status
        context = {
            **self.admin_site.each_context(request), **page(tenant, request.GET.get("verdict", "")), "opts": self.opts,
            "title": f"Shadow mode of {tenant.pk}", "subtitle": None, "may": may(request, tenant),
            "reason": request.POST.get("reason", ""), "max_reason": shadowing.MAX_REASON,
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/runs/shadow/tenant.html", context, status=status)

    def _tenant(self, request: HttpRequest, tenant_id: str) -> Tenant:
        mine = tenants_of(request)
        found = Tenant.objects.filter(pk=tenant_id).first() if mine is None or tenant_id in mine else None
        if found is None or not self.has_view_permission(request):
            raise Http404("there is no such page")
        return found

    def _turn(self, request: HttpRequest, tenant: Tenant) -> Refusal | None:
        """Raises PermissionDenied; the Refusal, where there is one, is told on the page."""
        to = request.POST.get("to", "")
        if not may_turn(request, to):
            raise PermissionDenied
        by, reason = staff(request).get_username(), request.POST.get("reason", "")
        try:
            changed = _enter(tenant.pk, by, reason) if to == "shadow" else _leave(tenant.pk, by, reason, request.POST)
        except Refusal as refusal:
            messages.error(request, f"{refusal.title} {refusal.detail}".strip())
            return refusal
        if not changed:
            messages.info(request, "It was so already; nothing changed.")
            return None
        self.log_change(request, tenant, f"Shadow mode {'entered' if to == 'shadow' else 'left'}: {visible(reason)}")
        told = "In shadow mode: nothing further is written." if to == "shadow" else "Runs admitted from now on write."
        messages.success(request, told)
        return None

    # --- columns ---

    @admin.display(description="request")
    def request(self, row: Shadow) -> str:
        return visible(row.run.request_id)

    @admin.display(description="verdict", ordering="verdict")
    def verdict_named(self, row: Shadow) -> str:
        text = name(row.verdict)
        return format_html('<span class="badge badge-{}" title="{}">{}</span>', TONES[row.verdict], why(row), text)

    @admin.display(description="proposed")
    def proposal(self, row: Shadow) -> str:
        return proposed(row)

    @admin.display(description="staff did")
    def staff_did(self, row: Shadow) -> str:
        return did(row)

    @admin.display(description="tenant", ordering="tenant_id")
    def tenant_name(self, row: Shadow) -> str:
        url = reverse("admin:runs_shadow_tenant", args=[row.tenant_id])
        return format_html('<a href="{}">{}</a>', url, visible(row.tenant_id))

    @admin.display(description="ended", ordering="at")
    def ended(self, row: Shadow) -> str:
        return format_html('<time datetime="{}">{}</time>', row.at.isoformat(), labels.moment(row.at))


def lean(rows: QuerySet[Shadow]) -> QuerySet[Shadow]:
    """Rows with their run's id and name and nothing else of it."""
    fields = [f.attname for f in Shadow._meta.concrete_fields]
    return rows.select_related("run").only(*fields, "run__request_id")


def may_turn(request: HttpRequest, to: str) -> bool:
    """Writing again takes the right to it; whoever may stop a tenant's writes may also have it propose alone."""
    user = staff(request)
    return user.has_perm(LEAVE) or (to == "shadow" and user.has_perm(PAUSE))


def may(request: HttpRequest, tenant: Tenant) -> bool:
    return may_turn(request, "live" if tenant.shadow else "shadow")


def _enter(tenant_id: str, by: str, reason: str) -> bool:
    changed = shadowing.enter(tenant_id, by=by, reason=reason)
    if changed:
        shadows.wake(tenant_id)
    return changed


def _leave(tenant_id: str, by: str, reason: str, form: Any) -> bool:
    if form.get("to") != "live":
        raise Refusal(400, "direction-missing", "Say whether the agent writes or proposes.")
    if form.get("sure") != "1":
        raise Refusal(400, "not-confirmed", "Confirm that the agent may write from now on.")
    return shadowing.leave(tenant_id, by=by, reason=reason, figures=shadows.figures(tenant_id).wire())


def page(tenant: Tenant, verdict: str) -> dict[str, Any]:
    """What the page of a tenant shows."""
    chosen = verdict if verdict in VERDICTS else ""
    found = shadows.figures(tenant.pk)
    rows = lean(shadows.of_tenant(tenant.pk, verdict=chosen or None))[:SHOWN]
    return {
        "tenant": tenant, "figures": found, "numbers": _numbers(found), "chosen": chosen,
        "tabs": [("", "All", sum(found.counts.values())), *((v, name(v), found.counts[v]) for v in NAMES)],
        "rows": [
            {"row": r, "verdict": name(r.verdict), "tone": TONES[r.verdict], "proposed": proposed(r), "did": did(r),
             "why": why(r)}
            for r in rows
        ],
        "shown": SHOWN, "changes": shadowing.history(tenant.pk),
    }  # fmt: skip


def _numbers(found: shadows.Figures) -> list[Number]:
    share, low, high = found.agreement.share, _percent(found.agreement.low), _percent(found.agreement.high)
    sure = f"{low} to {high} with 95 % certainty, by {found.told:,} compared"
    agrees = Number(
        name="Agreement", value=_percent(share) if share is not None else "–",
        detail=sure if found.told else "nothing was compared yet",
    )  # fmt: skip
    over = [
        Number(name=f"Refunded beyond staff, {m.currency}", value=str(m), tone="bad",
               detail="" if found.over_whole else "of the newest alone")
        for m in found.money_over
    ]  # fmt: skip
    return [agrees, *over]


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
