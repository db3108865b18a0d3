"""Roof: what must hold before a process starts: Django's system checks of ours. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib import admin
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError
from pydantic import ValidationError

from agentsite import env

LEAST_KEY_CHARS = 50
OURS = "agentsite"
"""What every process and command is held to; Django's own checks load the whole site, and belong to `check`."""


@register(OURS)
def registry_is_whole(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Every tool of the registry is complete and well spelt (M30)."""
    from tools import registry

    try:
        registry.check_all()
    except registry.BrokenRegistry as error:
        return [Error(fault, id="agentsite.E001") for fault in error.faults]
    return []


@register(OURS)
def blocked_tools_exist(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """A misspelt name among the blocked tools would block nothing, and nobody would see it."""
    return [Error(f"TOOLS_BLOCKED: {fault}", id="agentsite.E004") for fault in blocked_faults()]


def blocked_faults() -> list[str]:
    from tools import registry

    return registry.check_blocked(env.read().TOOLS_BLOCKED)


@register(OURS)
def assertions_are_on(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """`python -O` would drop the assertions that guard money."""
    return assertions(__debug__)


def assertions(on: bool) -> list[CheckMessage]:
    if on:
        return []
    return [Error("python -O is refused: our assertions guard money", id="agentsite.E002")]


@register(OURS, Tags.security)
def secret_key_is_long(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Any key is taken; a short one is said."""
    if len(settings.SECRET_KEY) >= LEAST_KEY_CHARS:
        return []
    return [Warning(f"SECRET_KEY has fewer than {LEAST_KEY_CHARS} characters", id="agentsite.W001")]


@register(Tags.admin)
def console_is_whole(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Django looks at the pages that are registered, and ours are with the first look at the site's paths alone."""
    admin.autodiscover()
    return list(admin.site.check(app_configs))


@register(Tags.database)
def profiles_can_be_loaded(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Every tenant's profile in force is one this code reads. Runs where a command asks for database checks."""
    if not databases:
        return []
    try:
        return [Error(fault, id="agentsite.E003") for fault in profile_faults()]
    except DatabaseError:
        return []  # no tables yet: `migrate` itself runs these checks


def profile_faults() -> list[str]:
    """What is wrong with the profiles in force, one line each; a fault names fields, never values."""
    from agentsite.tenants import profiles
    from agentsite.tenants.models import AgentProfile
    from tools import registry

    newest: dict[tuple[str, str], AgentProfile] = {}
    for row in AgentProfile.objects.order_by("tenant_id", "agent", "revision"):
        newest[(row.tenant_id, row.agent)] = row
    faults: list[str] = []
    for row in newest.values():
        try:
            faults += [f"{row}: {fault}" for fault in registry.check_profile(profiles.parse(row.document))]
        except ValidationError as error:
            faults += [f"{row}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)]
    return faults
