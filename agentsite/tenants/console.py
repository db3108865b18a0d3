"""Floor of every admin of ours: read-only, and blind to tenants a staff user is not assigned to.

May import no domain package. A row of another tenant does not exist here: crafted ids are 404.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse

from agentsite.tenants.models import Tenant, visible_tenants
from agentsite.tenants.profiles import TENANT_ID

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PAGE_ROWS = 50


def staff(request: HttpRequest) -> User:
    """The signed-in user of an admin page; the admin site lets nobody else in."""
    return cast("User", request.user)


def tenants_of(request: HttpRequest) -> set[str] | None:
    """Ids of the tenants this user sees, None for all of them; asked of the database once a request."""
    kept: dict[str, set[str] | None] = request.__dict__.setdefault("_tenants_seen", {})
    if "seen" not in kept:
        kept["seen"] = visible_tenants(staff(request))
    return kept["seen"]


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg]
    """A list and a page to look at. `tenant_lookup` names the column that holds the tenant's id."""

    tenant_lookup = "tenant_id"
    list_per_page = PAGE_ROWS
    show_full_result_count = False
    actions: Any = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        tenants = tenants_of(request)
        return rows if tenants is None else rows.filter(**{f"{self.tenant_lookup}__in": tenants})

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = str(self.opts.verbose_name_plural).capitalize()
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def seen_or_404(self, request: HttpRequest, object_id: str) -> Any:
        """The row where it exists, is of a tenant of this user, and may be viewed; else 404.

        An id may come plain, or as the admin's lists quote it (`_5F` for an underscore).
        """
        row = self.get_object(request, object_id) or self.get_object(request, unquote(object_id))
        if row is None or not self.has_view_permission(request, row):
            raise Http404("there is no such page")
        return row


class TenantFilter(admin.SimpleListFilter):
    """The tenants this user sees; no filter where there is one."""

    title = "tenant"
    parameter_name = "tenant"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        tenants = tenants_of(request)
        rows = Tenant.objects.all() if tenants is None else Tenant.objects.filter(pk__in=tenants)
        return [(pk, pk) for pk in rows.order_by("pk").values_list("pk", flat=True)[:200]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        wanted = self.value()
        if not wanted:
            return queryset
        # What is no id names no tenant, and PostgreSQL takes no NUL to look for.
        return queryset.filter(tenant_id=wanted) if TENANT_ID.fullmatch(wanted) else queryset.none()
