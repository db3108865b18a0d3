"""The site's paths with the sign-in of a provider switched on, for tests in a process that started without one."""

from __future__ import annotations

from django.urls import path

from agentsite import oidc
from agentsite.urls import handler400, handler403, handler404, handler500, urlpatterns

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns"]
urlpatterns = [
    *urlpatterns,
    path("oidc/authenticate/", oidc.SignIn.as_view(), name="oidc_authentication_init"),
    path("oidc/callback/", oidc.Callback.as_view(), name="oidc_authentication_callback"),
]
