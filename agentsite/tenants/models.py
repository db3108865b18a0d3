"""Door: tenants, what their agent may do, their service tokens, their staff, and the stop switches."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from knox.models import AbstractAuthToken

from agentsite import redaction
from agentsite.tenants import glance, profiles

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser as User


class Site(models.Model):
    """One row: the switch that stops every model call and write of the site, and the fence after a restore."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    paused = models.BooleanField(default=False)
    paused_reason = models.CharField(max_length=500, blank=True, default="")
    paused_by = models.CharField(max_length=200, blank=True, default="", db_default="")
    paused_at = models.DateTimeField(null=True, blank=True)
    fenced_at = models.DateTimeField(null=True, blank=True)
    fence_demanded_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="site_is_one_row")]

    def __str__(self) -> str:
        return "paused" if self.paused else "running"


class Tenant(models.Model):  # type: ignore[django-manager-missing]
    """A company whose customers' refunds we resolve. `paused` stops its writes."""

    id = models.CharField(primary_key=True, max_length=64)
    name = models.CharField(max_length=200, blank=True, default="")
    paused = models.BooleanField(default=False)
    paused_reason = models.CharField(max_length=500, blank=True, default="")
    paused_by = models.CharField(max_length=200, blank=True, default="", db_default="")
    paused_at = models.DateTimeField(null=True, blank=True)
    shadow = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.id

    def clean(self) -> None:
        if not profiles.TENANT_ID.fullmatch(self.id):
            raise ValidationError({"id": "a tenant id is [a-z0-9_]{1,64}"})


class AgentProfile(models.Model):
    """One revision of a tenant's profile; the newest is in force for runs to come."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="profiles")
    agent = models.CharField(max_length=64)
    revision = models.PositiveIntegerField()
    document = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "agent", "revision"], name="profile_revision_once")]
        ordering = ["tenant", "agent", "-revision"]

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.agent}@{self.revision}"


class ShadowChange(models.Model):
    """A recorded decision: a tenant entered or left shadow mode, by whom, why, and on which figures (M110)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="shadow_changes")
    shadow = models.BooleanField()
    by = models.CharField(max_length=200)
    reason = models.CharField(max_length=500)
    figures = models.JSONField(default=dict)
    at = models.DateTimeField()

    class Meta:
        default_permissions = ("view",)
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.tenant_id} {'entered' if self.shadow else 'left'} shadow mode"


class Objective(models.Model):
    """A tenant's service-level objective: the share of its runs that must end well, and fast enough, in a window."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True, related_name="objective")
    success_percent = models.DecimalField(max_digits=5, decimal_places=2, default=99)
    latency_percent = models.DecimalField(max_digits=5, decimal_places=2, default=95)
    latency_ms = models.PositiveIntegerField(default=30_000)
    window_days = models.PositiveSmallIntegerField(default=30)
    changed_by = models.CharField(max_length=200, blank=True, default="")
    changed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(success_percent__gt=0, success_percent__lt=100)
                & models.Q(latency_percent__gt=0, latency_percent__lt=100)
                & models.Q(latency_ms__gt=0, window_days__gte=1, window_days__lte=90),
                name="objective_can_be_met_and_missed",
            )
        ]

    def __str__(self) -> str:
        return f"objective of {self.tenant_id}"


class ServiceToken(AbstractAuthToken):  # type: ignore[misc]
    """A client program's bearer token: bound to a tenant, with scopes, kept only as a hash (knox)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="tokens")
    name = models.CharField(max_length=100)
    scopes = models.CharField(max_length=200)

    def __str__(self) -> str:
        return f"{self.name} ({self.tenant_id})"  # the library's own names a token by its hash

    def scope_list(self) -> list[str]:
        return self.scopes.split()


class StaffTenant(models.Model):
    """Which tenants a staff user sees."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="staff_tenants")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="staff")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "tenant"], name="staff_tenant_once")]

    def __str__(self) -> str:
        return f"{self.user_id} at {self.tenant_id}"


class CompanyAccount(models.Model):
    """Who a user is at the company's identity provider: its issuer and the subject it never gives to another."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="company_account")
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField()
    seen_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="company_account_once")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class SignInTries(models.Model):
    """Tries to sign in under one name from one address, and until when the next one waits; the key is a hash."""

    key = models.CharField(primary_key=True, max_length=64)
    tries = models.PositiveIntegerField(default=0)
    until = models.DateTimeField()
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["at"], name="sign_in_tries_by_time")]
        default_permissions = ()


def visible_tenants(user: User) -> set[str] | None:
    """Ids of the tenants a staff user may see; None means all (a superuser)."""
    if user.is_superuser:
        return None
    return set(StaffTenant.objects.filter(user_id=user.pk).values_list("tenant_id", flat=True))


def current_profile(tenant_id: str, agent: str = "refunds") -> profiles.Profile | None:
    """The profile in force for runs to come, or None where the tenant has no such agent."""
    document = glance.at(tenant_id, agent).profile
    return of_text(document) if document is not None else None


def of_text(document: str) -> profiles.Profile:
    """As `parsed`, of the stored text; one text is read once. Raises pydantic.ValidationError."""
    return _known(_read(document))


@lru_cache(maxsize=1024)
def _read(document: str) -> profiles.Profile:
    """By its text: which revision is in force is asked each time, what it says is read once."""
    return profiles.parse(json.loads(document))


def parsed(document: Any) -> profiles.Profile:
    """A stored profile; from now on this process knows the secrets that it names. Raises pydantic.ValidationError."""
    return _known(profiles.parse(document))


def _known(profile: profiles.Profile) -> profiles.Profile:
    commerce = profile.commerce
    named = (commerce.read_token_env, commerce.write_token_env) if commerce is not None else ()
    outside = (profile.webhook_secret_env, profile.notify.webhook_env)
    redaction.learn(*named, *profile.secrets.values(), *(name for name in outside if name))
    return profile
