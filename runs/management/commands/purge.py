"""Door: `purge`, erases what was kept for its whole time; a worker does the same by itself about once an hour."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from agentsite.tenants.models import Tenant
from runs import retention
from runs.management import output
from runs.management.base import SiteCommand

NAMES = {"conversation": "conversations", "evidence": "evidence of runs", "webhooks": "webhooks", "notices": "notices",
         "sessions": "sign-in sessions"}  # fmt: skip


class Command(SiteCommand):
    help = (
        "Erase the words and facts of runs that ended longer ago than they are kept (RETAIN_CONVERSATION_DAYS, "
        "RETAIN_EVIDENCE_DAYS, RETAIN_DELIVERIES_DAYS; a tenant's profile may shorten them), and sessions that are "
        "over. Ids, keys, amounts, hashes, decisions and the audit chain stay. Killed half-way, run it again. "
        "Exit codes: 0 done, 1 failed, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="count what would be erased; erase nothing")
        parser.add_argument("--tenant", help="of this tenant alone")
        parser.add_argument("--json", action="store_true", help="print the counts as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant_id, dry = options["tenant"], options["dry_run"]
        if tenant_id is not None and not Tenant.objects.filter(id=tenant_id).exists():
            raise CommandError(f"no tenant {tenant_id!r}")
        counted = asdict(retention.due(tenant_id) if dry else _purge(tenant_id))
        if options["json"]:
            return output.data(self.stdout, {**counted, "dry_run": dry})
        words = ", ".join(f"{number} {NAMES[name]}" for name, number in counted.items() if number) or "nothing"
        return output.say(self.stdout, f"[green]✓[/green] {'would erase' if dry else 'erased'}: {words}.")


def _purge(tenant_id: str | None) -> retention.Purged:
    done = retention.Purged(sessions=retention.end_sessions())
    while (more := retention.purge(by="shell", tenant_id=tenant_id)).any:
        done += more
    return done
