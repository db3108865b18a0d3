"""The rows of what comes from and goes to the world outside a run: files, webhooks, a thumb. Columns, no methods."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from runs.models.rows import Run, new_id


class Attachment(models.Model):
    """A file that came with the request (`input_seq` null) or with a message; named everywhere by its hash."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attachments")
    tenant_id = models.CharField(max_length=64)
    input_seq = models.PositiveIntegerField(null=True)
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=255)
    media_type = models.CharField(max_length=127)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveIntegerField()
    content = models.BinaryField(null=True)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["run", "input_seq", "position"], name="attachment_by_run")]
        default_permissions = ("view",)


class Webhook(models.Model):
    """One message to a client's `callback_url`, written with the transition it tells of; delivered at least once."""

    id = models.CharField(primary_key=True, max_length=40)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="webhooks")
    tenant_id = models.CharField(max_length=64)
    type = models.CharField(max_length=40)
    seq = models.PositiveIntegerField()
    url = models.CharField(max_length=2000)
    host = models.CharField(max_length=270, default="", db_default="")
    body = models.TextField()
    state = models.CharField(max_length=10, default="due", choices=[(s, s) for s in ("due", "delivered", "dead")])
    due_at = models.DateTimeField(null=True)
    tries = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "type", "seq"], name="webhook_once")]
        indexes = [
            models.Index(fields=["due_at"], name="webhook_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["state", "-created_at"], name="webhook_by_state"),
        ]
        default_permissions = ("view",)
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.type} ({self.state})"


class Delivery(models.Model):
    """One try at delivering a webhook: what was answered, or what went wrong."""

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    number = models.PositiveSmallIntegerField()
    at = models.DateTimeField()
    status = models.PositiveSmallIntegerField(null=True)
    error = models.CharField(max_length=80, blank=True, default="")
    took_ms = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["webhook", "number"], name="delivery_once")]
        default_permissions = ("view",)
        ordering = ["webhook", "number"]


class Feedback(models.Model):
    """The customer's thumb and word on a run; the last one stands."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="feedback")
    rating = models.CharField(max_length=4)
    text = models.TextField(blank=True, default="")
    at = models.DateTimeField()
