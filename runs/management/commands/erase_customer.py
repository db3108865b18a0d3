"""Door: `erase_customer`, forgets what one customer said and what was found about him, where his runs have ended."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from agentsite.tenants.models import Tenant
from agentsite.text import has_forbidden, visible
from runs import retention
from runs.management import output
from runs.management.base import SiteCommand

STOPS = {
    "live": "it has not ended: let it end, or cancel it",
    "write_open": "nobody knows yet what became of its refund: settle the write",
    "refund_watched": "its refund is watched for 30 days, since it may still fail",
    "webhook_due": "a webhook of it is not delivered yet",
}


class Command(SiteCommand):
    help = (
        "Erase every word and fact of a customer's ended runs at once: conversation, evidence, webhooks, notices. "
        "Ids, keys, amounts, hashes, decisions and the audit chain stay, and each run says when and why. Runs that "
        "cannot be erased yet are listed with what stops it; run it again later, twice is harmless. "
        "Exit codes: 0 all erased, 1 failed or some are kept, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("customer", metavar="CUSTOMER", help="the customer_id of the runs")
        parser.add_argument("--tenant", required=True, help="whose customer it is")
        parser.add_argument("--reason", required=True, help="why, kept for ever in each run's record: no name in it")
        parser.add_argument("--by", default="shell", help="who asked for it")
        parser.add_argument("--json", action="store_true", help="print what was done as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant_id, customer, reason = options["tenant"], options["customer"], options["reason"].strip()
        if not reason or any(map(has_forbidden, (customer, reason, options["by"]))):
            raise CommandError("a reason is needed, and plain text", returncode=2)
        if not Tenant.objects.filter(id=tenant_id).exists():
            raise CommandError(f"no tenant {tenant_id!r}")
        done = retention.forget(tenant_id, customer, why=reason, by=options["by"])
        self._tell(done, as_json=options["json"])
        if done.kept:
            raise CommandError(f"{len(done.kept)} of the customer's runs are kept for now: run it again later")

    def _tell(self, done: retention.Forgotten, *, as_json: bool) -> None:
        if as_json:
            return output.data(self.stdout, asdict(done))
        for request_id in done.erased:
            self.stdout.write(f"erased  {visible(request_id)}")
        for request_id, why in done.kept:
            self.stdout.write(f"kept    {visible(request_id)}: {STOPS[why]}")
        counts = f"{len(done.erased)} runs erased, {len(done.before)} were before, {len(done.kept)} are kept"
        return output.say(self.stdout, f"{counts}; {done.webhooks} webhooks and {done.notices} notices are gone.")
