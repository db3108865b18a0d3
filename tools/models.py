"""Door: policy documents and their passages. The registry (status, version) is the word on what is current."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentsite.tenants.models import Tenant


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
        return f"{self.doc_id}@v{self.version}"


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
