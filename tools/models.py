"""Door: policy documents and their passages, whose registry says what is current; and the circuit breakers."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentsite.tenants.models import Tenant
from agentsite.text import visible


class PolicyDocument(models.Model):
    """One version of a policy of one tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    doc_id = models.CharField(max_length=64)
    version = models.PositiveIntegerField()
    title = models.CharField(max_length=300)
    status = models.CharField(max_length=12, choices=[(s, s) for s in ("current", "superseded", "draft")])
    effective_from = models.DateField(null=True)
    effective_until = models.DateField(null=True)
    body = models.TextField()
    content_hash = models.CharField(max_length=80)
    loaded_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "doc_id", "version"], name="policy_version_once"),
            models.UniqueConstraint(
                fields=["tenant", "doc_id"], condition=Q(status="current"), name="one_current_policy_version"
            ),
        ]
        ordering = ["tenant", "doc_id", "-version"]

    def __str__(self) -> str:
        return f"{visible(self.doc_id)}@v{self.version}"


class PolicyPassage(models.Model):
    """A section of a policy, whole: no clause loses its condition."""

    document = models.ForeignKey(PolicyDocument, on_delete=models.CASCADE, related_name="passages")
    section = models.CharField(max_length=300)
    position = models.PositiveIntegerField()
    text = models.TextField()
    content_hash = models.CharField(max_length=80)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["document", "position"], name="passage_once")]
        ordering = ["document", "position"]


class Breaker(models.Model):
    """The circuit breaker of one account at one dependency, for all processes (`tools.breaker` alone writes it).

    Closed while `open_until` is null; open until then; half-open afterwards, with one leased probe.
    """

    dependency = models.CharField(max_length=64)
    account = models.CharField(max_length=400)
    failures = models.PositiveIntegerField(default=0)
    opened_at = models.DateTimeField(null=True)
    open_until = models.DateTimeField(null=True)
    probe_token = models.CharField(max_length=32, default="", blank=True)
    probe_until = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dependency", "account"], name="one_breaker_an_account"),
            models.CheckConstraint(
                condition=Q(opened_at__isnull=True, open_until__isnull=True)
                | Q(opened_at__isnull=False, open_until__isnull=False),
                name="breaker_open_since_and_until",
            ),
            models.CheckConstraint(
                condition=Q(probe_token="", probe_until__isnull=True)
                | (~Q(probe_token="") & Q(probe_until__isnull=False)),
                name="breaker_probe_has_an_end",
            ),
        ]
        ordering = ["dependency", "account"]

    def __str__(self) -> str:
        return visible(f"{self.dependency} {self.account}")
