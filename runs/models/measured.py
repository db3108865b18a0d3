"""The rows of what is measured beside runs: evaluations of a route, proposals of shadow mode. Columns, no methods."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentsite.fields import CanonicalJSON
from runs.models.rows import Qualification, Run

VERDICTS = ("open", "agree", "overreach", "miss", "unclear")


class Evaluation(models.Model):
    """One run of a scenario suite on one route: what was measured, under which hashes, against which thresholds."""

    agent = models.CharField(max_length=64)
    route = models.CharField(max_length=200)
    answered_model = models.CharField(max_length=200, blank=True, default="")
    setup = models.CharField(max_length=1)
    release = models.CharField(max_length=64)
    suite = models.CharField(max_length=100)
    suite_hash = models.CharField(max_length=80)
    scorer_hash = models.CharField(max_length=80)
    prompt_hash = models.CharField(max_length=80)
    tools_hash = models.CharField(max_length=80)
    code_hash = models.CharField(max_length=80)
    thresholds = CanonicalJSON()
    figures = CanonicalJSON()
    cases = CanonicalJSON()
    passed = models.BooleanField()
    by = models.CharField(max_length=200)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    qualification = models.ForeignKey(Qualification, on_delete=models.PROTECT, null=True, related_name="evaluations")

    class Meta:
        indexes = [models.Index(fields=["suite", "route", "-ended_at"], name="evaluation_newest")]
        default_permissions = ("view",)
        ordering = ["-ended_at", "-id"]

    def __str__(self) -> str:
        return f"{self.suite} on {self.route}"


class Shadow(models.Model):
    """What a run in shadow mode proposed instead of writing, and what staff did then (M110).

    `proposed` is `{tool, args}` with ids and amount alone, null where it proposed no write. `staff` is `{refunds, why,
    over}`: the refunds that were made beside us, the verdict's slug of why, and the money that we would have refunded
    and staff did not. `compare_at` null: nothing more is compared.
    """

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="shadow")
    tenant_id = models.CharField(max_length=64)
    order_ids = CanonicalJSON(default=list)
    proposed = CanonicalJSON(null=True)
    decision = models.CharField(max_length=16, blank=True, default="")
    rule = models.CharField(max_length=64, blank=True, default="")
    at = models.DateTimeField()
    compare_at = models.DateTimeField(null=True)
    staff = CanonicalJSON(null=True)
    verdict = models.CharField(max_length=10, default="open", choices=[(v, v) for v in VERDICTS])
    compared_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(verdict__in=VERDICTS), name="shadow_verdict_known")]
        indexes = [
            models.Index(fields=["compare_at"], name="shadow_to_compare", condition=Q(compare_at__isnull=False)),
            models.Index(fields=["tenant_id", "-at"], name="shadow_newest"),
        ]
        permissions = [("leave_shadow", "Can end a tenant's shadow mode, so that its agent writes")]
        default_permissions = ("view",)
        verbose_name = "proposal in shadow mode"
        verbose_name_plural = "proposals in shadow mode"
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.verdict}"
