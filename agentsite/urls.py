"""Roof: every path of the site, and what is answered where there is none."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from agentsite import health, metrics

admin.autodiscover()

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/", permanent=False), name="home"),
    path("admin/", admin.site.urls),
    path("c/", include("runs.customer.urls")),
    path("api/v1/", include("runs.api.urls")),
    path("api/v1/", include("approvals.api.urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    path("health/live", health.live, name="live"),
    path("health/ready", health.ready, name="ready"),
    path("metrics", metrics.metrics, name="metrics"),
]

if settings.ENV.oidc:
    from agentsite import oidc

    urlpatterns += [
        path("oidc/authenticate/", oidc.SignIn.as_view(), name="oidc_authentication_init"),
        path("oidc/callback/", oidc.Callback.as_view(), name="oidc_authentication_callback"),
    ]

handler400 = "agentsite.problems.bad_request"
handler403 = "agentsite.problems.permission_denied"
handler404 = "agentsite.problems.not_found"
handler500 = "agentsite.problems.server_error"
