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

    def __str__(self) -> str:
        return visible(self.section)


class PolicyCorpus(models.Model):
    """What of a tenant is to be searched, by one random stamp: each change of it, of whatever kind, makes a new one.

    A host whose index bears another stamp builds its own again (`tools.policy.index`). `vectors_stamp` is another with
    each batch of vectors; one process at a time makes them, by a lease in database time (`tools.policy.embedding`).
    """

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, primary_key=True, related_name="+")
    stamp = models.CharField(max_length=32)
    changed_at = models.DateTimeField()
    vectors_stamp = models.CharField(max_length=32, default="", blank=True)
    embeds_token = models.CharField(max_length=32, default="", blank=True)
    embeds_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.stamp}"


class PassageVector(models.Model):
    """The embedding of one text by one model, of unit length, as little-endian float32; kept while a passage has it.

    The text is a passage under its titles, and `content_hash` is that of the whole (`tools.policy.embedding`).
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    model = models.CharField(max_length=200)
    content_hash = models.CharField(max_length=80)
    vector = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "model", "content_hash"], name="one_vector_a_text")]

    def __str__(self) -> str:
        return f"{visible(self.model)} {self.content_hash}"


class PolicyIncident(models.Model):
    """Runs that abstained because the version they were pinned to is not current (M9): one row until it is closed.

    `current` None: no version of the document is in effect. `owner` is the profile's `queue_owner`.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    doc_id = models.CharField(max_length=64)
    pinned = models.PositiveIntegerField()
    current = models.PositiveIntegerField(null=True)
    owner = models.CharField(max_length=254, blank=True, default="")
    runs = models.PositiveIntegerField(default=1)
    last_run_id = models.CharField(max_length=36)
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    closed_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "doc_id", "pinned"], condition=Q(closed_at__isnull=True), name="one_open_incident"
            ),
        ]
        ordering = ["-last_seen_at", "-id"]

    def __str__(self) -> str:
        return f"{visible(self.doc_id)}@v{self.pinned}"


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
