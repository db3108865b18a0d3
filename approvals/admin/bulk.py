"""What may be done to several approvals at once: reject and assign, never approve. Writes through keepers alone.

Nothing happens before a page has shown every action. Each rejection is a decision of its own, with the hash that was
shown; what changed since is refused and named.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from agentsite.canonical import sha256
from agentsite.refusals import Refusal
from agentsite.tenants.console import ReadOnly, staff
from agentsite.text import blank, has_forbidden, storable, visible
from approvals import holds, labels, permits, queue, reasons
from approvals.admin import views
from approvals.admin.holding import back
from approvals.models import Approval

MOST = 50
MAX_PEOPLE = 200
TITLE = {"reject": "Reject", "assign": "Assign"}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One approval of the page in between: what is shown of it, and the hash over exactly that."""

    row: Approval
    amount: str
    rule: str
    looking: str
    objection: str
    shown: str


class Bulk(ReadOnly):
    """Two actions of the list, each with a page in between."""

    actions = ("reject_selected", "assign_selected")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.bulk_view)
        return [path("bulk/<slug:act>/", view, name="approvals_approval_bulk"), *super().get_urls()]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """None where the view is not of what waits."""
        return super().get_actions(request) if views.chosen(request).counted else {}

    def has_decide_permission(self, request: HttpRequest) -> bool:
        return staff(request).has_perm(permits.DECIDE)

    @admin.action(description="Reject…", permissions=["decide"])
    def reject_selected(self, request: HttpRequest, queryset: QuerySet[Approval]) -> HttpResponse | None:
        return self._between(request, "reject", queryset)

    @admin.action(description="Assign…", permissions=["decide"])
    def assign_selected(self, request: HttpRequest, queryset: QuerySet[Approval]) -> HttpResponse | None:
        return self._between(request, "assign", queryset)

    def bulk_view(self, request: HttpRequest, act: str) -> HttpResponse:
        """The POST of the page in between: `chosen` ids, each with the `hash:ID` that was shown."""
        if act not in TITLE:
            raise Http404("there is no such page")
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not (self.has_view_permission(request) and self.has_decide_permission(request)):
            raise PermissionDenied
        ids = list(dict.fromkeys(map(storable, request.POST.getlist("chosen"))))
        if not 0 < len(ids) <= MOST:
            messages.error(request, _too_many(len(ids)))
            return HttpResponseRedirect(back(request))
        fault = _fault(act, request)
        if fault:
            messages.error(request, fault)
            return self._bulk_page(request, act, self._lines(request, self._rows(request, ids)), status=400)
        refused = _done(request, act, ids)
        _tell(request, act, ids, refused, _named(self._rows(request, list(refused))))
        return HttpResponseRedirect(back(request))

    def _between(self, request: HttpRequest, act: str, rows: QuerySet[Approval]) -> HttpResponse | None:
        found = list(rows.order_by("expires_at", "pk")[: MOST + 1])
        if not 0 < len(found) <= MOST:
            messages.error(request, _too_many(len(found)))
            return None
        # Whole rows: what the list read of them leaves out what decides who may.
        return self._bulk_page(request, act, self._lines(request, self._rows(request, [row.pk for row in found])))

    def _rows(self, request: HttpRequest, ids: list[str]) -> list[Approval]:
        rows = self.get_queryset(request).filter(pk__in=ids).select_related("claimed_by", "assigned_to")
        return list(rows.order_by("expires_at", "pk")[:MOST])

    def _lines(self, request: HttpRequest, rows: Iterable[Approval]) -> list[Line]:
        at = views.seen(request)
        return [_line(row, at) for row in rows]

    def _bulk_page(self, request: HttpRequest, act: str, lines: list[Line], status: int = 200) -> HttpResponse:
        many = f"{len(lines)} approval{'' if len(lines) == 1 else 's'}"
        people = holds.deciders([line.row for line in lines], MAX_PEOPLE) if act == "assign" else []
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, "subtitle": None, "act": act, "lines": lines,
            "title": f"{TITLE[act]} {many}", "back": request.POST.get("back", ""), "sent": request.POST,
            "to_reject": reasons.fitting("reject"), "max_reason": queue.MAX_REASON, "people": people,
        }  # fmt: skip
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/approvals/approval/bulk.html", context, status=status)


def _line(row: Approval, at: views.Seen) -> Line:
    looking, unfit = holds.looking(row, at.user, at.now), permits.objection(row, at.user)
    return Line(
        row=row, amount=labels.amount(row.amount_minor, row.currency), rule=labels.rule(row.rule, row.currency),
        looking=looking.by if looking and not looking.mine else "", objection=unfit.title if unfit else "",
        shown=shown(row),
    )  # fmt: skip


def shown(row: Approval) -> str:
    """The hash over what the page in between shows of one approval: less than its own page does."""
    return sha256({
        "v": 1, "page": "bulk", "approval_id": row.pk, "action_hash": row.action_hash, "tool": row.tool,
        "amount_minor": row.amount_minor, "currency": row.currency, "order_id": row.order_id, "rule": row.rule,
        "payment_id": row.payment_id, "customer_id": row.customer_id, "tenant_id": row.tenant_id,
    })  # fmt: skip


def _too_many(count: int) -> str:
    if count == 0:
        return "Choose at least one approval. Nothing was changed."
    return f"At most {MOST} at once. Nothing was changed."


def _fault(act: str, request: HttpRequest) -> str:
    """What is missing in the form, or ""."""
    if act == "assign":
        return "" if "to" in request.POST else "Choose a person, or nobody."
    code, text = request.POST.get("reason_code", ""), request.POST.get("reason", "")
    if code not in {reason.code for reason in reasons.fitting("reject")}:
        return "Choose a reason. Nothing was rejected."
    if blank(text) or has_forbidden(text) or len(text) > queue.MAX_REASON:
        return f"Write the reason down, in plain text of at most {queue.MAX_REASON} characters. Nothing was rejected."
    return ""


def _done(request: HttpRequest, act: str, ids: list[str]) -> dict[str, Refusal]:
    """Does it to each, one after the other; the refusal of each that was refused."""
    refused: dict[str, Refusal] = {}
    person = _person(request) if act == "assign" else None
    for approval_id in ids:
        try:
            if act == "assign":
                holds.assign(approval_id, staff(request), person)
            else:
                _reject(request, approval_id)
        except Refusal as refusal:
            refused[approval_id] = refusal
    return refused


def _reject(request: HttpRequest, approval_id: str) -> None:
    form = request.POST
    queue.decide(
        approval_id, staff(request), "reject", form.get(f"hash:{approval_id}", ""), form["reason"],
        reason_code=form["reason_code"], address=request.META.get("REMOTE_ADDR", ""),
        screen_hash=form.get(f"shown:{approval_id}", ""),
    )  # fmt: skip


def _person(request: HttpRequest) -> AbstractUser | None:
    """Whom the form names; nobody for an empty field. Http404 for a crafted one."""
    asked = request.POST["to"]
    if not asked:
        return None
    people = get_user_model().objects.filter(is_active=True, is_staff=True)
    found = people.filter(pk=int(asked)).first() if asked.isdecimal() and len(asked) < 19 else None
    if found is None:
        raise Http404("there is no such person")
    return found


def _tell(request: HttpRequest, act: str, ids: list[str], refused: dict[str, Refusal], names: dict[str, str]) -> None:
    done = len(ids) - len(refused)
    if done:
        messages.success(request, f"{'Rejected' if act == 'reject' else 'Assigned'}: {done} of {len(ids)}.")
    for approval_id, why in refused.items():
        messages.error(request, f"Not done: {names.get(approval_id, 'one of them')}. {why.title} {why.detail}".strip())


def _named(rows: Iterable[Approval]) -> dict[str, str]:
    """What each is called in a message; rows of other tenants are not among them."""
    return {row.pk: f"order {visible(row.order_id)}, {labels.amount(row.amount_minor, row.currency)}" for row in rows}
