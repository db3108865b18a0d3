"""`shadow`: a tenant's shadow mode: where it stands, what its proposals came to, entering and leaving it on record."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet
from rich.text import Text

from agentsite import clock
from agentsite.refusals import Refusal
from agentsite.tenants import shadowing
from agentsite.tenants.models import ShadowChange, Tenant
from agentsite.text import visible
from approvals import labels
from runs.management import output
from runs.management.base import SiteCommand
from runs.models import Shadow
from runs.orchestrator import compare_due
from runs.store import shadows
from tools.contracts import Json

LISTED = 50
DIFFER = ("overreach", "miss")


class Command(SiteCommand):
    help = (
        "Show a tenant's shadow mode: its state, what its agent proposed beside what staff did, and who changed it. "
        "--enter and --leave change it, with a reason, on record; leaving keeps the figures of that moment. "
        "Exit codes: 0 done, 1 it was so already, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's id")
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--enter", action="store_true", help="from now on it proposes and writes nothing")
        change.add_argument("--leave", action="store_true", help="runs admitted from now on may write")
        parser.add_argument("--reason", default="", help="why (kept on record; needed for a change)")
        parser.add_argument("--by", metavar="USER", help="a superuser on whose authority (default: the shell)")
        parser.add_argument("--compare", action="store_true", help="compare all that was not compared for good, now")
        parser.add_argument("--days", type=int, metavar="N", help="figures of the last N days (default: all)")
        parser.add_argument("--json", action="store_true", help="print one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant: str = options["tenant"]
        if not Tenant.objects.filter(pk=tenant).exists():
            raise CommandError(f"TENANT: there is no {visible(tenant)}", returncode=2)
        if options["days"] is not None and not 1 <= options["days"] <= 36_500:
            raise CommandError("--days: from 1 to 36500", returncode=2)
        by = _by(options["by"])
        compared = self._compare(tenant) if options["compare"] else None
        changed = self._change(tenant, by, options) if options["enter"] or options["leave"] else None
        found = shadows.figures(tenant, days=options["days"])
        differ = list(_differ(tenant, found))
        if options["json"]:
            more = {"changed": changed, "compared_now": compared, "disagreements": [_row(row) for row in differ]}
            return output.data(self.stdout, {**_state(tenant, found), **more})
        return self._tell(tenant, found, differ, compared)

    def _compare(self, tenant: str) -> int:
        shadows.compare_all(tenant)
        return compare_due(tenant)

    def _change(self, tenant: str, by: str, options: dict[str, Any]) -> bool:
        try:
            changed = _enter(tenant, by, options["reason"]) if options["enter"] else _leave(tenant, by, options)
        except Refusal as refusal:
            raise CommandError(f"--reason: {refusal.title}", returncode=2) from None
        if not changed:
            raise CommandError(f"{tenant} is {'' if options['enter'] else 'not '}in shadow mode already")
        return True

    def _tell(self, tenant: str, found: shadows.Figures, differ: list[Shadow], compared: int | None) -> None:
        state = (
            "in shadow mode: it proposes and writes nothing"
            if shadowing.stands(tenant)
            else "writes, within its profile"
        )
        output.say(self.stdout, f"{tenant}: {state}")
        if compared is not None:
            output.say(self.stdout, f"compared just now: {compared}")
        output.say(self.stdout, _agreement(found))
        counts = ", ".join(f"{verdict} {n}" for verdict, n in found.counts.items())
        output.say(self.stdout, f"proposals: {counts}")
        for amount in found.money_over:
            output.say(self.stdout, f"would have refunded beyond staff: {amount}")
        self._tables(differ, shadowing.history(tenant))

    def _tables(self, differ: list[Shadow], changes: list[ShadowChange]) -> None:
        if differ:
            table = output.table("verdict", "why", "request", "ended", "proposed", title="Not agreed, newest first")
            for row in differ:
                why = labels.spoken(row.staff["why"]) if row.staff else ""
                cells = (row.verdict, why, visible(row.run.request_id), labels.moment(row.at), _proposed(row))
                table.add_row(*map(Text, cells))
            output.show(self.stdout, table)
        if changes:
            table = output.table("change", "by", "at", "reason", title="Decisions")
            for change in changes:
                words = ("entered" if change.shadow else "left", visible(change.by), labels.moment(change.at))
                table.add_row(*map(Text, (*words, visible(change.reason))))
            output.show(self.stdout, table)


def _by(username: str | None) -> str:
    if username is None:
        return "shell"
    found = get_user_model().objects.filter(username=username, is_active=True, is_superuser=True).exists()
    if not found:
        raise CommandError(f"--by: {visible(username)} is no active superuser", returncode=2)
    return username


def _enter(tenant: str, by: str, reason: str) -> bool:
    changed = shadowing.enter(tenant, by=by, reason=reason)
    if changed:
        shadows.wake(tenant)
    return changed


def _leave(tenant: str, by: str, options: dict[str, Any]) -> bool:
    figures = shadows.figures(tenant, days=options["days"]).wire()
    return shadowing.leave(tenant, by=by, reason=options["reason"], figures=figures)


def _differ(tenant: str, found: shadows.Figures) -> QuerySet[Shadow]:
    rows = shadows.of_tenant(tenant, since=found.since).filter(verdict__in=DIFFER)
    return rows.select_related("run")[:LISTED]


def _state(tenant: str, found: shadows.Figures) -> Json:
    changes = [
        {"shadow": c.shadow, "by": c.by, "reason": c.reason, "at": clock.rfc3339(c.at), "figures": c.figures}
        for c in shadowing.history(tenant)
    ]
    return {"tenant": tenant, "shadow": shadowing.stands(tenant), "figures": found.wire(), "changes": changes}


def _row(row: Shadow) -> Json:
    return {
        "run_id": str(row.pk), "request_id": row.run.request_id, "verdict": row.verdict, "proposed": row.proposed,
        "decision": row.decision, "staff": row.staff, "at": clock.rfc3339(row.at),
    }  # fmt: skip


def _proposed(row: Shadow) -> str:
    found = shadows.proposal(row.proposed)
    return f"{found.amount} to {visible(found.payment_id)}" if found else "no refund"


def _agreement(found: shadows.Figures) -> str:
    share = found.agreement.share
    if share is None:
        return "agreement: nothing was compared yet"
    low, high = f"{found.agreement.low:.1%}", f"{found.agreement.high:.1%}"
    return f"agreement: {share:.1%} of {found.told} compared ({low} to {high} with 95 % certainty)"
