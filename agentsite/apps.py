"""Roof: wires every process of the site once all apps are loaded: the Celery application and the system checks."""

from __future__ import annotations

from django.apps import AppConfig


class SiteConfig(AppConfig):
    name = "agentsite"
    verbose_name = "Site"

    def ready(self) -> None:
        from django.conf import settings

        from agentsite import celery, checks, redaction  # noqa: F401 - importing the checks registers them

        # Those that were generated stand in no variable.
        redaction.keep(settings.SECRET_KEY, *(pair.partition(":")[2] for pair in settings.AUDIT_KEY.split(",")))

        # Without this a web thread publishes through Celery's own default application, to a broker nobody has.
        celery.app.set_default()
