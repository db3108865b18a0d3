"""Door: what stands still, for the banner of every page of the console, and the switches that a person may flip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django import template
from django.contrib.admin.utils import quote
from django.urls import reverse

from agentsite.tenants import shadowing, switches
from agentsite.tenants.models import Site, Tenant, visible_tenants

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PAUSE = "runs.pause_tenant"
MAX_TENANTS = 20
register = template.Library()
register.simple_tag(switches.standing, name="standing")
register.simple_tag(shadowing.shown, name="in_shadow")


@dataclass(frozen=True, kw_only=True)
class Switch:
    """One button of the console's home; it leads to the page that asks for a reason."""

    what: str
    stopped: bool
    url: str


@register.simple_tag
def switch_url(user: User, tenant_id: str | None) -> str:
    """The page of the switch of the site (None) or a tenant; "" for whoever may not flip it."""
    if tenant_id is None:
        return _site() if switches.may_stop_site(user) else ""
    return _tenant(tenant_id) if user.has_perm(PAUSE) else ""


@register.simple_tag
def flippable(user: User) -> list[Switch]:
    """The switches this person may flip: the site's, then his tenants', the stopped ones first; at most 20 tenants."""
    found = []
    if switches.may_stop_site(user):
        stopped = Site.objects.filter(pk=switches.SITE, paused=True).exists()
        found.append(Switch(what="The whole site", stopped=stopped, url=_site()))
    if not user.has_perm(PAUSE):
        return found
    mine = visible_tenants(user)
    rows = Tenant.objects.all() if mine is None else Tenant.objects.filter(pk__in=mine)
    tenants = rows.order_by("-paused", "pk").values_list("pk", "paused")[:MAX_TENANTS]
    return found + [Switch(what=f"Writes of {pk}", stopped=paused, url=_tenant(pk)) for pk, paused in tenants]


def _site() -> str:
    return reverse("admin:tenants_site_switch", args=[switches.SITE])


def _tenant(tenant_id: str) -> str:
    return reverse("admin:tenants_tenant_switch", args=[quote(tenant_id)])
