"""Door: where people sign in through the company's identity provider, for the sign-in page."""

from __future__ import annotations

from urllib.parse import urlencode

from django import template
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

register = template.Library()


@register.simple_tag
def company_sign_in(request: HttpRequest) -> str:
    """The address that begins it, keeping where the person was going; empty where no provider is configured."""
    try:
        path = reverse("oidc_authentication_init")
    except NoReverseMatch:
        return ""
    going = request.GET.get("next", "")
    return f"{path}?{urlencode({'next': going})}" if going else path
