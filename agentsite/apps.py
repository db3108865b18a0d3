"""Roof: wires every process of the site once all apps are loaded: the Celery application and the system checks."""

from __future__ import annotations

from django.apps import AppConfig


class SiteConfig(AppConfig):
    name = "agentsite"
    verbose_name = "Site"

    def ready(self) -> None:
        from agentsite import celery, checks  # noqa: F401 - importing the checks registers them

        # Without this a web thread publishes through Celery's own default application, to a broker nobody has.
        celery.app.set_default()
