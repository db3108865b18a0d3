"""Claim, release and snooze: buttons in the list and on the review page, each a POST. Writes through `approvals.holds`.

Imports no runs. Where a POST came from a list, it leads back to that list as it was narrowed.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from agentsite import dbtime
from agentsite.refusals import Refusal
from agentsite.tenants.console import ReadOnly, staff
from approvals import holds, labels, permits
from approvals.models import Approval
from approvals.states import Approved

MAX_BACK = 2000
MORNING = time(7)


class Holding(ReadOnly):
    """The address that every one of these buttons posts to."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.hold_view)
        return [path("<path:object_id>/hold/", view, name="approvals_approval_hold"), *super().get_urls()]

    def hold_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """`hold` says what: claim, release, wake, or for how long it is put off."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        approval = self.seen_or_404(request, object_id)
        if not staff(request).has_perm(permits.DECIDE):
            raise PermissionDenied
        try:
            messages.success(request, hold(request.POST.get("hold", ""), approval, staff(request)))
        except Refusal as refusal:
            messages.error(request, f"{refusal.title} {refusal.detail}".strip())
        return HttpResponseRedirect(back(request) or reverse("admin:approvals_approval_change", args=[approval.pk]))


def hold(what: str, approval: Approval, user: AbstractUser) -> str:
    """Does one of them and returns what to say. Raises Refusal; Http404 for a word that is none of them."""
    if what == "claim":
        until = holds.claim(approval.pk, user)
        return f"You are looking at it, until {labels.moment(until)}. Others see that, and may still decide."
    if what == "release":
        return "Released." if holds.release(approval.pk, user) else "You were not looking at it."
    if what == "wake":
        return "Back in your list." if holds.wake(approval.pk, user) else "You had not put it off."
    return _snooze(what, approval, user)


def _snooze(what: str, approval: Approval, user: AbstractUser) -> str:
    until = ends(dbtime.now()).get(what)
    if until is None:
        raise Http404("there is no such thing to do")
    holds.snooze(approval.pk, user, until)
    said = f"Put off until {labels.moment(until)}, for you alone."
    if approval.expires_at <= until:
        said += f" It expires before that, at {labels.moment(approval.expires_at)}."
    return said


def ends(now: datetime) -> dict[str, datetime]:
    """Until when each button puts off; tomorrow begins at seven in the site's time zone."""
    here = timezone.localtime(now)
    morning = timezone.make_aware(datetime.combine(here.date() + timedelta(days=1), MORNING))
    return {"1h": now + timedelta(hours=1), "4h": now + timedelta(hours=4), "tomorrow": morning}


def back(request: HttpRequest) -> str:
    """The list a POST came from, as it was narrowed; never another site's page. "" where it came from no list."""
    if "back" not in request.POST:
        return ""
    kept = QueryDict(request.POST["back"][:MAX_BACK].removeprefix("?")).urlencode()
    return reverse("admin:approvals_approval_changelist") + (f"?{kept}" if kept else "")


def cell(row: Approval, user: AbstractUser, now: datetime) -> str:
    """A row's cell in the list: who is looking, for whom it is, and this person's buttons."""
    return render_to_string("admin/approvals/approval/hold_cell.html", context(row, user, now))


def context(row: Approval, user: AbstractUser, now: datetime) -> dict[str, Any]:
    """What the templates of a hold need."""
    open_ = row.status == Approved.PENDING and row.expires_at > now
    return {
        "row": row, "looking": holds.looking(row, user, now), "assigned": row.assigned_to, "open": open_,
        "may": open_ and permits.objection(row, user) is None,
        "url": reverse("admin:approvals_approval_hold", args=[row.pk]),
    }  # fmt: skip
