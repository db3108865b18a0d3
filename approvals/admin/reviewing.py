"""Door: the review page, where a person decides. Reads runs; writes only through `approvals.queue`.

No approval by GET: one POST with the hash of what was looked at, after the live facts were read once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from agentsite.refusals import Refusal
from agentsite.tenants.console import ReadOnly, staff
from agentsite.text import storable
from approvals import labels, permits, queue, reasons
from approvals.admin import following, rereading, screen
from approvals.models import Approval
from approvals.states import Approved
from runs.models import Observation
from tools import citations

MOVED = "The facts changed since this was proposed."
READ_AGAIN = "Read what changed, then decide anew on the page as it is now."


class Review(ReadOnly):
    """One approval's page and everything below it; each is 404 to who may not see the approval."""

    def get_urls(self) -> list[URLPattern]:
        own: list[tuple[str, str, Callable[..., HttpResponseBase]]] = [
            ("progress", "progress/", self.progress_view),
            ("reread", "reread/", self.reread_view),
            ("evidence", "evidence/<str:obs_id>/", self.evidence_view),
        ]
        below = [
            path(f"<path:object_id>/{end}", self.admin_site.admin_view(view), name=f"approvals_approval_{name}")
            for name, end, view in own
        ]
        return [*below, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The review page; a POST decides and leads back to it."""
        approval = self.seen_or_404(request, object_id)
        if request.method == "POST":
            return self._decide(request, approval)
        view = screen.build(approval, staff(request))
        context = {"screen": view, "title": f"{view.action}, {view.amount}", "max_reason": queue.MAX_REASON,
                   "to_approve": reasons.fitting("approve"), "to_reject": reasons.fitting("reject")}  # fmt: skip
        return self._page(request, "review.html", context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """An approval's history is its decisions, which its page shows."""
        approval = self.seen_or_404(request, object_id)
        return HttpResponseRedirect(_url(approval) + "#decisions")

    def progress_view(self, request: HttpRequest, object_id: str) -> JsonResponse:
        """What became of the run, for the page's small poll: `{headline, tone, rest, rows, timeline}`."""
        approval = self.seen_or_404(request, object_id)
        run = screen.run_of(approval)
        now = following.progress(approval, run)
        return JsonResponse(
            {
                "headline": now.headline, "tone": now.tone, "rest": now.rest,
                "rows": [[pair.label, pair.value] for pair in now.rows],
                "timeline": [[e.offset, e.type, e.summary] for e in following.timeline(run)],
            },
            headers={"Cache-Control": "no-store"},
        )  # fmt: skip

    def evidence_view(self, request: HttpRequest, object_id: str, obs_id: str) -> HttpResponse:
        """One observation of the approval's run, whole; `obs_3.2` is a passage that `obs_3` holds."""
        approval = self.seen_or_404(request, object_id)
        whole = citations.split(storable(obs_id))[0]
        seen = Observation.objects.filter(run_id=approval.run_id, obs_id=whole).first()
        if seen is None:
            raise Http404("there is no such page")
        context = {"approval": approval, "seen": seen, "title": f"Observation {labels.words(seen.obs_id)}"}
        return self._page(request, "evidence.html", context)

    def reread_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Reads the live facts again, for whoever may decide; a POST alone does it, and it leads back to the page."""
        approval = self.seen_or_404(request, object_id)
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not staff(request).has_perm(permits.DECIDE):
            raise PermissionDenied
        if approval.status == Approved.PENDING:
            _tell(request, rereading.again(approval))
        return HttpResponseRedirect(_url(approval))

    def _page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        frame = {**self.admin_site.each_context(request), "opts": self.opts, "subtitle": None}
        request.current_app = self.admin_site.name
        return TemplateResponse(request, f"admin/approvals/approval/{template}", {**frame, **context})

    def _decide(self, request: HttpRequest, approval: Approval) -> HttpResponse:
        try:
            _said(request, self._answer(request, approval))
        except Refusal as refusal:
            if refusal.status == 404:
                raise Http404("there is no such page") from None
            messages.error(request, f"{refusal.title} {refusal.detail}".strip())
        return HttpResponseRedirect(_url(approval))

    def _answer(self, request: HttpRequest, approval: Approval) -> queue.Decided:
        form, user = request.POST, staff(request)
        sent = {"action_hash": form.get("action_hash", ""), "screen_hash": form.get("screen_hash", ""),
                "address": request.META.get("REMOTE_ADDR", "")}  # fmt: skip
        decision = form.get("decision", "")
        if decision == "approve" and _would_count(approval, user, sent):
            moved = rereading.again(approval).moved
            if moved:
                said = Refusal(409, "facts-changed", MOVED, f"{rereading.told(moved)} {READ_AGAIN}")
                raise queue.refuse(approval.pk, user, said, by=user.get_username(), decision=decision, **sent)
        return queue.decide(
            approval.pk, user, decision, reason=form.get("reason", ""), reason_code=form.get("reason_code", ""),
            attestation=form.get("attestation", ""), shown=screen.screen_hash, **sent,
        )  # fmt: skip


def _would_count(approval: Approval, user: Any, sent: dict[str, str]) -> bool:
    """Whether a yes of this user on this page would be taken: only then is the business system asked."""
    same = sent["action_hash"] == approval.action_hash and sent["screen_hash"] == screen.screen_hash(approval)
    return same and screen.panel(approval, user).may


def _tell(request: HttpRequest, found: rereading.Reread) -> None:
    if found.error:
        messages.warning(request, f"The business system could not be read now ({labels.spoken(found.error)}).")
    elif found.changes:
        messages.warning(request, f"Read again: changed since the proposal. {rereading.told(found.changes)}")
    else:
        messages.success(request, "Read again: nothing that matters changed since the proposal.")


def _url(approval: Approval) -> str:
    return reverse("admin:approvals_approval_change", args=[approval.pk])


def _said(request: HttpRequest, done: queue.Decided) -> None:
    verb, when = queue.SPOKEN[done.decision], labels.moment(done.at)
    if done.kind == "same-again":
        messages.info(request, f"Already recorded: {done.by} {verb} this at {when}. Nothing was done twice.")
    elif done.remaining:
        messages.success(request, "Your approval is saved. A second, different person must approve before it runs.")
    else:
        messages.success(request, f"Saved: {done.by} {verb} this at {when}.")
