"""Roof: registers the site's system checks once every app is loaded."""

from __future__ import annotations

from django.apps import AppConfig


class SiteConfig(AppConfig):
    name = "agentsite"
    verbose_name = "Site"

    def ready(self) -> None:
        from agentsite import checks  # noqa: F401 - registering them is the point
