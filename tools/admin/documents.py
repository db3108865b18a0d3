"""Door: policy documents to look at, to load, and to make current or withdraw, each act recorded with its person.

Writes only through `tools.policy.standing`. Nothing is erased or replaced here: a text changes under a new version.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from agentsite import clock
from agentsite.tenants.console import ReadOnly, TenantFilter, staff
from agentsite.text import has_forbidden, storable, visible
from tools.admin.loading import LoadForm, pinned_by
from tools.models import PolicyDocument, PolicyPassage
from tools.policy import standing
from tools.policy.documents import PolicyError, PolicyFormatError, within_its_dates

LOAD, CHANGE = "tools.add_policydocument", "tools.change_policydocument"
MAX_REASON = 500
ACTS = {"current": "Make current", "superseded": "Withdraw"}


class Passages(admin.TabularInline):  # type: ignore[type-arg]
    """The sections of a document, in their order."""

    model = PolicyPassage
    fields = ("position", "heading", "words")
    readonly_fields = fields
    extra = 0
    can_delete = False
    ordering = ("position",)

    @admin.display(description="section")
    def heading(self, row: PolicyPassage) -> str:
        return visible(row.section)

    @admin.display(description="text")
    def words(self, row: PolicyPassage) -> str:
        return storable(row.text)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # Whoever may see the document may see its sections.
        return may_see(request)


def may_see(request: HttpRequest) -> bool:
    """Whoever may load a policy, or say which is current, may look at them."""
    return any(staff(request).has_perm(name) for name in ("tools.view_policydocument", LOAD, CHANGE))


@admin.register(PolicyDocument)
class PolicyDocumentAdmin(ReadOnly):
    """Every version of every policy; which one is current is a status here, never a wording."""

    change_form_template = "admin/tools/policydocument/document.html"
    list_display = ("doc", "version", "named", "status", "tenant_id", "effective_from", "effective_until")
    list_filter = ("status", TenantFilter)
    search_fields = ("^doc_id", "title")
    fields = (
        "tenant", "doc", "version", "named", "status", "effective_from", "effective_until", "content_hash",
        "loaded_at", "words",
    )  # fmt: skip
    readonly_fields = fields
    inlines = (Passages,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("tenant")

    def get_urls(self) -> list[URLPattern]:
        status = path(
            "<path:object_id>/status/", self.admin_site.admin_view(self.status_view), name="tools_policydocument_status"
        )
        return [status, *super().get_urls()]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return staff(request).has_perm(LOAD)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return may_see(request)

    # --- loading ---

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A policy from a file or a text. The GET changes nothing; the POST stores it, or says what is wrong."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = LoadForm(request.POST or None, request.FILES or None, user=staff(request))
        if request.method == "POST" and form.is_valid():
            loaded = self._load(request, form)
            if loaded is not None:
                return HttpResponseRedirect(reverse("admin:tools_policydocument_change", args=[quote(loaded.pk)]))
        status = 400 if request.method == "POST" else 200
        context = {"form": form, "title": "Load a policy"}
        return self._page(request, "admin/tools/policydocument/load.html", context, status)

    def _load(self, request: HttpRequest, form: LoadForm) -> PolicyDocument | None:
        try:
            with transaction.atomic():
                added = standing.add(form.tenant_id, form.policy(), by=staff(request).get_username())
                if added.new:
                    self.log_addition(request, added.document, f"Loaded as {added.document.status}.")
        except PolicyFormatError as error:
            form.add_error(form.field_of(error), str(error))
            return None
        except PolicyError as error:
            form.add_error(form.source, str(error))
            return None
        document = added.document
        said = f"{document} is loaded as {document.status}." if added.new else f"{document} was stored so already."
        messages.success(request, said)
        if added.stood_back_for is not None:
            newer = f"Version {added.stood_back_for} is newer and stays current; this page can change that."
            messages.warning(request, newer)
        return document

    # --- which version is current ---

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.seen_or_404(request, object_id)
        acts = _offered(row) if staff(request).has_perm(CHANGE) else {}
        more = {"acts": acts, "status_url": self._status_url(row), "row": row}
        return super().change_view(request, str(row.pk), form_url, {**(extra_context or {}), **more})

    def status_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What making a version current, or withdrawing it, would do. The POST does it, for what the page showed."""
        row = self.seen_or_404(request, object_id)
        if not staff(request).has_perm(CHANGE):
            raise PermissionDenied
        to, status = _asked(request, row), 200
        if request.method == "POST":
            status = self._set(request, row, to)
            if status == 302:
                return HttpResponseRedirect(reverse("admin:tools_policydocument_change", args=[quote(row.pk)]))
            row.refresh_from_db()
        now = standing.seen(row)
        context = {
            "title": f"{ACTS.get(to, 'Status')}: {row}", "row": row, "to": to, "act": ACTS.get(to), "now": now,
            "offered": to in _offered(row), "pins": pinned_by(row), "dated": within_its_dates(row, clock.now().date()),
            "others": now.current is not None and now.current != row.version, "max_reason": MAX_REASON,
            "reason": request.POST.get("reason", ""), "status_url": self._status_url(row),
        }  # fmt: skip
        return self._page(request, "admin/tools/policydocument/status.html", context, status)

    def _set(self, request: HttpRequest, row: PolicyDocument, to: str) -> int:
        """Does it where it may be done; the status of the answer."""
        reason, by = request.POST.get("reason", "").strip()[:MAX_REASON], staff(request).get_username()
        if not reason or has_forbidden(reason) or to not in ACTS:
            messages.error(request, "A reason is needed, in plain text.")
            return 400
        act = standing.make_current if to == "current" else standing.withdraw
        try:
            with transaction.atomic():
                document = act(row.pk, as_seen=_as_seen(request), by=by)
                self.log_change(request, document, f"{ACTS[to]}: {storable(reason)}")
        except standing.Moved:
            messages.error(request, "It changed meanwhile, and nothing was done. This is how it stands now.")
            return 409
        messages.success(request, f"{document} is {document.status} now.")
        return 302

    def _status_url(self, row: PolicyDocument) -> str:
        return reverse("admin:tools_policydocument_status", args=[quote(row.pk)])

    def _page(self, request: HttpRequest, template: str, more: dict[str, Any], status: int) -> HttpResponse:
        context = {**self.admin_site.each_context(request), "opts": self.opts, "subtitle": None, **more}
        request.current_app = self.admin_site.name
        return TemplateResponse(request, template, context, status=status)

    # --- columns ---

    @admin.display(description="doc id", ordering="doc_id")
    def doc(self, row: PolicyDocument) -> str:
        return visible(row.doc_id)

    @admin.display(description="title", ordering="title")
    def named(self, row: PolicyDocument) -> str:
        return visible(row.title)

    @admin.display(description="body")
    def words(self, row: PolicyDocument) -> str:
        return storable(row.body)


def _offered(row: PolicyDocument) -> dict[str, str]:
    return {to: words for to, words in ACTS.items() if to != row.status}


def _asked(request: HttpRequest, row: PolicyDocument) -> str:
    """What the page is about: what was asked for, else the opposite of what the version is."""
    asked = request.POST.get("to") or request.GET.get("to") or ""
    return asked if asked in ACTS else "superseded" if row.status == "current" else "current"


def _as_seen(request: HttpRequest) -> standing.Standing:
    sent = request.POST
    current = sent.get("seen_current", "")
    return standing.Standing(
        status=sent.get("seen_status", ""), content_hash=sent.get("seen_hash", ""),
        current=int(current) if current.isascii() and current.isdigit() and len(current) < 10 else None,
    )  # fmt: skip
