"""Door: approvals and the append-only record of what people decided. `approvals.queue` is the only writer.

`run_id` is a plain id: this package knows no runs (its doors read them).
"""

from __future__ import annotations

import secrets

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentsite.fields import CanonicalJSON
from approvals.states import OPEN, Approved


def new_id() -> str:
    return "apr_" + secrets.token_hex(10)


class Approval(models.Model):
    """A question to a person: may exactly this action run? Bound to its hash, perishable."""

    id = models.CharField(primary_key=True, max_length=40, default=new_id, editable=False)
    tenant_id = models.CharField(max_length=64)
    run_id = models.UUIDField()
    request_id = models.CharField(max_length=128)
    call_id = models.CharField(max_length=32)
    tool = models.CharField(max_length=64)
    args = CanonicalJSON()
    action_hash = models.CharField(max_length=80)
    policy = models.CharField(max_length=80)
    rule = models.CharField(max_length=80)
    checks = CanonicalJSON()
    facts = CanonicalJSON()
    evidence = CanonicalJSON()
    customer_id = models.CharField(max_length=128)
    order_id = models.CharField(max_length=128)
    payment_id = models.CharField(max_length=128)
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    created_by = models.CharField(max_length=200)
    earlier = models.CharField(max_length=40, null=True)
    messages_shown = CanonicalJSON(default=list)

    risk = models.PositiveSmallIntegerField(default=0, db_default=0)
    attestation = models.CharField(max_length=500, blank=True, default="", db_default="")
    assigned_to = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    claimed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    claimed_until = models.DateTimeField(null=True)
    reread = CanonicalJSON(null=True)
    notices_until = models.DateTimeField(null=True)

    status = models.CharField(max_length=10, default=Approved.PENDING.value)
    required = models.PositiveSmallIntegerField(default=1)
    large = models.BooleanField(default=False)
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    decided_by = models.CharField(max_length=200, null=True)
    reason = models.TextField(blank=True, default="")
    reason_code = models.CharField(max_length=40, blank=True, default="", db_default="")
    execute_by = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    void_reason = models.CharField(max_length=80, blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(status__in=[s.value for s in Approved]), name="approval_status_known"),
            models.CheckConstraint(condition=Q(required__in=[1, 2]), name="approval_required_one_or_two"),
            models.UniqueConstraint(
                fields=["run_id"],
                condition=Q(status__in=sorted(s.value for s in OPEN)),
                name="one_open_approval_per_run",
            ),
        ]
        indexes = [
            # What a list may be narrowed by stands at the end: it passes over the other rows without reading them.
            models.Index(fields=["status", "expires_at", "tenant_id"], name="approval_queue"),
            models.Index(
                fields=["-risk", "requested_at", "tenant_id", "rule", "currency"],
                name="approval_risk",
                condition=Q(status="pending"),
            ),
            models.Index(
                fields=["-decided_at", "tenant_id", "rule", "currency"],
                name="approval_decided",
                condition=Q(decided_at__isnull=False),
            ),
            models.Index(fields=["run_id"], name="approval_by_run"),
            models.Index(fields=["notices_until"], name="approval_notices", condition=Q(notices_until__isnull=False)),
            models.Index(fields=["tenant_id", "order_id"], name="approval_by_order"),
            models.Index(fields=["requested_at", "tenant_id", "status", "decided_at"], name="approval_asked"),
            # Few are claimed or assigned: the foreign keys' own indexes hold all the others as well.
            models.Index(
                fields=["claimed_by", "claimed_until"], name="approval_claims", condition=Q(claimed_by__isnull=False)
            ),
            models.Index(
                fields=["assigned_to", "requested_at"], name="approval_lists", condition=Q(assigned_to__isnull=False)
            ),
            # For the search by an id's beginning, which a plain index serves in one of PostgreSQL's collations alone.
            models.Index(fields=["order_id"], name="approval_find_order", opclasses=["varchar_pattern_ops"]),
            models.Index(fields=["payment_id"], name="approval_find_payment", opclasses=["varchar_pattern_ops"]),
            models.Index(fields=["customer_id"], name="approval_find_customer", opclasses=["varchar_pattern_ops"]),
            models.Index(fields=["request_id"], name="approval_find_request", opclasses=["varchar_pattern_ops"]),
        ]
        permissions = [
            ("decide_approval", "Can approve or reject"),
            ("decide_large_approval", "Can approve above the second threshold"),
        ]
        default_permissions = ("view",)
        ordering = ["expires_at"]

    def __str__(self) -> str:
        return f"{self.id} ({self.status})"


class Decision(models.Model):
    """One person's answer, or one refusal to take it; never changed, never deleted."""

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="decisions")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+")
    by = models.CharField(max_length=200)
    decision = models.CharField(max_length=8, choices=[("approve", "approve"), ("reject", "reject")])
    counted = models.BooleanField(default=True)
    refusal = models.CharField(max_length=40, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    reason_code = models.CharField(max_length=40, blank=True, default="", db_default="")
    attested = models.CharField(max_length=500, blank=True, default="", db_default="")
    action_hash = models.CharField(max_length=80)
    screen_hash = models.CharField(max_length=80, blank=True, default="")
    address = models.CharField(max_length=64, blank=True, default="")
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "user"], condition=Q(counted=True), name="one_decision_per_person"
            )
        ]
        default_permissions = ("view",)
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.by} {self.decision} {self.approval_id}"


class Snooze(models.Model):
    """Not now: until then an approval is no longer in the list of what needs this person."""

    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="snoozes")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    until = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["approval", "user"], name="snooze_once")]
        default_permissions = ()


class Notice(models.Model):
    """Something to tell staff by mail or chat: sent at least once, by its own due time; blocks nothing."""

    approval = models.ForeignKey(Approval, null=True, on_delete=models.CASCADE, related_name="notices")
    tenant_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=20)
    channel = models.CharField(max_length=10, choices=[("email", "email"), ("chat", "chat")])
    address = models.CharField(max_length=300)
    period = models.CharField(max_length=32, blank=True, default="")
    state = models.CharField(max_length=10, default="due", choices=[(s, s) for s in ("due", "sent", "failed", "moot")])
    due_at = models.DateTimeField(null=True)
    tries = models.PositiveSmallIntegerField(default=0)
    error = models.CharField(max_length=80, blank=True, default="")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["approval", "kind", "channel", "address"],
                condition=Q(approval__isnull=False),
                name="notice_once",
            ),
            models.UniqueConstraint(
                fields=["tenant_id", "kind", "channel", "address", "period"],
                condition=Q(approval__isnull=True),
                name="digest_once",
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], name="notice_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["state", "created_at"], name="notice_by_state"),
        ]
        default_permissions = ("view",)
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.kind} by {self.channel} ({self.state})"
