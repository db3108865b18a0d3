"""The rows of a run. Columns and constraints, no methods; `runs.store` is the only hand that writes them.

The row is the queue (`due_at`, lease, tries): a broker message is a hint. JSON that is hashed is kept as its canonical
text. Events carry the audit chain's columns. No key has an index that another one begins with.
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Case, F, Q, When
from uuid_utils import compat

from agentsite.fields import CanonicalJSON
from agentsite.tenants.models import Tenant
from runs.states import LIVE, Status

LIVE_VALUES = sorted(s.value for s in LIVE)
WRITE_STATES = ("intent", "sent", "unknown", "pending", "confirmed", "failed", "refused", "not_sent")
OPEN_WRITES = ("intent", "sent", "unknown", "pending")
OVER, ENDED = Q(completed_at__isnull=False), ("ended_as", "outcome", "reason")
WAITS = ("approval", "reply", "dependency", "refund", "order", "staff")


def new_id() -> uuid.UUID:
    """A time-ordered id, so that rows of one time lie together."""
    return compat.uuid7()


class Run(models.Model):
    """One request of a customer, from admission to a verified end."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    request_id = models.CharField(max_length=128)
    body_hash = models.CharField(max_length=80)
    trace_id = models.CharField(max_length=32)
    agent = models.CharField(max_length=64)
    customer_id = models.CharField(max_length=128)
    contract = CanonicalJSON()
    schema = models.PositiveSmallIntegerField(default=1)
    release = models.CharField(max_length=64)
    created_by = models.CharField(max_length=200)
    callback_url = models.CharField(max_length=2000, blank=True, default="")
    conversation_erased_at = models.DateTimeField(null=True)
    evidence_erased_at = models.DateTimeField(null=True)

    status = models.CharField(max_length=20, default=Status.ACCEPTED.value)
    reason = models.CharField(max_length=40, null=True)
    outcome = models.CharField(max_length=20, null=True)
    waiting_for = models.CharField(max_length=12, null=True)
    resume_status = models.CharField(max_length=20, null=True)
    dependency = models.CharField(max_length=40, null=True)
    status_since = models.DateTimeField()
    version = models.PositiveIntegerField(default=1)
    last_seq = models.PositiveIntegerField(default=0)
    chain_head = models.CharField(max_length=64, default="")
    last_input_seq = models.PositiveIntegerField(default=0)
    folded_input_seq = models.PositiveIntegerField(default=0)

    pending_action = CanonicalJSON(null=True)
    approval_id = models.CharField(max_length=40, null=True)
    verification = CanonicalJSON(null=True)
    reply = models.TextField(null=True)
    versions = CanonicalJSON(default=dict)

    model_calls = models.PositiveIntegerField(default=0)
    write_attempts = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    cost_micros = models.PositiveBigIntegerField(default=0)
    active_ms = models.PositiveIntegerField(default=0)
    repairs = models.PositiveSmallIntegerField(default=0)
    retries = models.PositiveSmallIntegerField(default=0)
    down_since = models.DateTimeField(null=True)
    restored_at = models.DateTimeField(null=True)
    window_tokens = models.PositiveIntegerField(null=True)
    turn_requests = models.PositiveIntegerField(default=0, db_default=0)
    voids = models.PositiveSmallIntegerField(default=0)

    due_at = models.DateTimeField(null=True)
    lease_token = models.CharField(max_length=32, null=True)
    lease_until = models.DateTimeField(null=True)
    lease_deadline = models.DateTimeField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    enqueued_at = models.DateTimeField(null=True)
    enqueue_tries = models.PositiveSmallIntegerField(default=0)

    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True)
    # The status it ended with: an index over `status` itself would have each step write all indexes of the row.
    ended_as = models.GeneratedField(
        expression=Case(When(completed_at__isnull=False, then=F("status"))), db_persist=True,
        output_field=models.CharField(max_length=20, null=True),
    )  # fmt: skip

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "request_id"], name="run_once_per_request"),
            models.CheckConstraint(condition=Q(status__in=[s.value for s in Status]), name="run_status_known"),
            models.CheckConstraint(
                condition=Q(waiting_for__isnull=True) | Q(waiting_for__in=WAITS), name="run_waiting_for_known"
            ),
            models.CheckConstraint(condition=Q(folded_input_seq__lte=models.F("last_input_seq")), name="run_inputs"),
        ]
        indexes = [
            models.Index(fields=["due_at"], name="run_due", condition=Q(completed_at__isnull=True)),
            models.Index(fields=["tenant", "-created_at", "-id"], name="run_newest"),
            models.Index(fields=["tenant", "customer_id", "-created_at"], name="run_by_customer"),
            models.Index(fields=["completed_at"], name="run_words_kept", condition=Q(conversation_erased_at=None)),
            models.Index(fields=["completed_at"], name="run_evidence_kept", condition=Q(evidence_erased_at=None)),
            models.Index(fields=["created_at"], name="run_by_time"),
            models.Index(fields=["trace_id"], name="run_by_trace"),
            # For staff, who look at what has ended: entered once, at a run's end, so that no step pays for them.
            models.Index(name="run_ended", condition=OVER, fields=["completed_at", "tenant", *ENDED]),
            models.Index(name="run_ended_as", condition=OVER, fields=[*ENDED, "tenant", "completed_at"]),
        ]
        permissions = [
            ("operate_run", "Can retry, escalate, cancel, ask again or finish a run by hand"),
            ("settle_write", "Can settle an unknown write"),
            ("pause_tenant", "Can pause and resume a tenant's writes"),
        ]
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.request_id} ({self.status})"


class RunOrder(models.Model):
    """Orders a run is about: those it was admitted with and those it proposed to write on."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="orders", db_index=False)
    tenant_id = models.CharField(max_length=64)
    order_id = models.CharField(max_length=128)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "order_id"], name="run_order_once")]
        indexes = [models.Index(fields=["tenant_id", "order_id"], name="run_order_lookup")]


class Input(models.Model):
    """What a door left for a run: a customer's message, a cancel, a staff act. `seq` is its event's."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="inputs", db_index=False)
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=12, choices=[(k, k) for k in ("message", "cancel", "ask_again", "escalate")])
    message_id = models.CharField(max_length=128)
    text = models.TextField(blank=True, default="")
    by = models.CharField(max_length=200)
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="input_seq_once"),
            models.UniqueConstraint(fields=["run", "kind", "message_id"], name="input_message_once"),
        ]
        ordering = ["run", "seq"]


class Turn(models.Model):
    """One model call: what was asked of whom, what came back raw, and the proposals read from it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="turns", db_index=False)
    number = models.PositiveIntegerField()
    span = models.CharField(max_length=16)
    route = models.CharField(max_length=200)
    answered_model = models.CharField(max_length=200, blank=True, default="")
    prompt_version = models.CharField(max_length=64)
    prompt_hash = models.CharField(max_length=80)
    template_hash = models.CharField(max_length=80, blank=True, default="", db_default="")
    tools_version = models.CharField(max_length=80)
    registry_version = models.CharField(max_length=80, blank=True, default="", db_default="")
    policy_version = models.CharField(max_length=80, blank=True, default="", db_default="")
    tools_shown = CanonicalJSON(default=list)
    raw = models.TextField()
    proposals = CanonicalJSON(default=list)
    final = CanonicalJSON(null=True)
    error = CanonicalJSON(null=True)
    finish_reason = models.CharField(max_length=32, blank=True, default="")
    input_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0, db_default=0)
    estimate = models.PositiveIntegerField(default=0, db_default=0)
    cost_micros = models.PositiveBigIntegerField(default=0)
    started_at = models.DateTimeField()
    took_ms = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="turn_once")]
        ordering = ["run", "number"]


class Draft(models.Model):
    """What a model call under way has said so far: for staff to watch, gone with the call's checkpoint (M97)."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="draft")
    route = models.CharField(max_length=200)
    thinking = models.TextField(blank=True, default="")
    text = models.TextField(blank=True, default="")
    at = models.DateTimeField()


class Observation(models.Model):
    """What a run was told: a tool's result, a typed error, a denial, a decision, a customer's message."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="observations", db_index=False)
    obs_id = models.CharField(max_length=32)
    position = models.PositiveIntegerField()
    call_id = models.CharField(max_length=32, blank=True, default="")
    span = models.CharField(max_length=16, blank=True, default="")
    kind = models.CharField(
        max_length=12, choices=[(k, k) for k in ("result", "error", "denial", "decision", "message", "notice")]
    )
    source = models.CharField(max_length=64)
    args = CanonicalJSON(default=dict)
    content = CanonicalJSON()
    content_hash = models.CharField(max_length=80)
    meta = CanonicalJSON(default=dict)
    fetched_at = models.DateTimeField()
    took_ms = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "obs_id"], name="observation_once"),
            models.UniqueConstraint(fields=["run", "call_id"], name="one_result_per_call", condition=~Q(call_id="")),
        ]
        ordering = ["run", "position"]


class Event(models.Model):
    """The append-only record that database, console and model view share; chained by a keyed hash."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="events", db_index=False)
    seq = models.PositiveIntegerField()
    type = models.CharField(max_length=32)
    at = models.DateTimeField()
    version = models.PositiveIntegerField()
    span = models.CharField(max_length=16, null=True)
    meta = CanonicalJSON()
    payload = CanonicalJSON(null=True)
    salt = models.CharField(max_length=32, null=True)
    digest = models.CharField(max_length=64)
    prev = models.CharField(max_length=64)
    mac = models.CharField(max_length=64)
    key_id = models.CharField(max_length=32)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_seq_once")]
        ordering = ["run", "seq"]


class OrderGuard(models.Model):
    """An order's epoch: bumped by every write of ours that opens, changes state or closes (`write-path.md` 2)."""

    tenant_id = models.CharField(max_length=64)
    order_id = models.CharField(max_length=128)
    epoch = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "order_id"], name="order_guard_once")]


class Write(models.Model):
    """A side effect with a life of its own: intent, sent, unknown, pending, confirmed, failed, refused, not_sent."""

    key = models.CharField(primary_key=True, max_length=512)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="writes")
    tenant_id = models.CharField(max_length=64)
    order_id = models.CharField(max_length=128)
    payment_id = models.CharField(max_length=128)
    tool = models.CharField(max_length=64)
    args = CanonicalJSON()
    action_hash = models.CharField(max_length=80)
    approval_id = models.CharField(max_length=40, null=True)
    decision_id = models.CharField(max_length=64)
    body = models.TextField()
    origin = models.CharField(max_length=300)
    amount_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    state = models.CharField(max_length=12, default="intent")
    refund_id = models.CharField(max_length=128, null=True)
    refund_state = models.CharField(max_length=64, null=True)
    result = CanonicalJSON(null=True)
    call_id = models.CharField(max_length=32)
    customer_id = models.CharField(max_length=128)
    intent_at = models.DateTimeField()
    unknown_since = models.DateTimeField(null=True)
    absent_at = models.DateTimeField(null=True)
    executed_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    look_at = models.DateTimeField(null=True)
    looks = models.PositiveIntegerField(default=0)
    watch_at = models.DateTimeField(null=True)
    watched = models.PositiveSmallIntegerField(default=0, db_default=0)
    customer_window = models.CharField(max_length=32, blank=True, default="")
    tenant_window = models.CharField(max_length=32, blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=WRITE_STATES), name="write_state_known"),
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="write_amount_positive"),
            models.UniqueConstraint(
                fields=["tenant_id", "order_id"], condition=Q(state__in=OPEN_WRITES), name="one_open_write_per_order"
            ),
            models.UniqueConstraint(
                fields=["approval_id"], condition=Q(approval_id__isnull=False), name="approval_used_once"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant_id", "order_id"], name="write_by_order"),
            models.Index(fields=["look_at"], name="write_to_look_up", condition=Q(look_at__isnull=False)),
            models.Index(fields=["watch_at"], name="write_to_watch", condition=Q(watch_at__isnull=False)),
        ]


class Attempt(models.Model):
    """One try at sending a write: prepared with the intent, marked sent by a commit of its own, answered or not."""

    write = models.ForeignKey(Write, on_delete=models.PROTECT, related_name="tries")
    number = models.PositiveSmallIntegerField()
    prepared_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)
    gives_up_at = models.DateTimeField(null=True)
    answered_at = models.DateTimeField(null=True)
    answer = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["write", "number"], name="attempt_once")]
        ordering = ["write", "number"]


class Counter(models.Model):
    """Totals of writes in a window, bumped only while they stay under their ceiling (M118)."""

    tenant_id = models.CharField(max_length=64)
    scope = models.CharField(max_length=16)
    subject = models.CharField(max_length=128)
    currency = models.CharField(max_length=3)
    window = models.CharField(max_length=32)
    count = models.PositiveIntegerField(default=0)
    amount_minor = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "scope", "subject", "currency", "window"], name="counter_once")
        ]


class Qualification(models.Model):
    """A model route's right to propose writes for one agent (`write-path.md` 10)."""

    agent = models.CharField(max_length=64)
    provider = models.CharField(max_length=32)
    origin = models.CharField(max_length=300, blank=True, default="")
    requested_model = models.CharField(max_length=200)
    answered_model = models.CharField(max_length=200)
    prompt_hash = models.CharField(max_length=80)
    tools_hash = models.CharField(max_length=80)
    kind = models.CharField(max_length=10, choices=[("evaluated", "evaluated"), ("manual", "manual")])
    reason = models.CharField(max_length=500)
    by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    revoked = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["agent", "provider", "requested_model"], name="qualification_lookup")]


class Sweeper(models.Model):
    """One row: which process sweeps now, and when the last pass ended (shown in health and `doctor`)."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    token = models.CharField(max_length=32, default="")
    until = models.DateTimeField(null=True)
    last_pass_at = models.DateTimeField(null=True)
    last_pass_ms = models.PositiveIntegerField(default=0)
    last_found = models.PositiveIntegerField(default=0)
    published = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="sweeper_is_one_row")]


class Process(models.Model):
    """A live process of ours: what it consumes, when it last said so, whether a thread hangs."""

    name = models.CharField(primary_key=True, max_length=120)
    kind = models.CharField(max_length=20)
    queues = models.CharField(max_length=100, blank=True, default="")
    pid = models.PositiveIntegerField()
    host = models.CharField(max_length=120)
    url = models.CharField(max_length=200, blank=True, default="")
    seen_at = models.DateTimeField()
    hung = models.PositiveSmallIntegerField(default=0)
