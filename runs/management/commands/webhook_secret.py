"""Door: `webhook_secret`, the key by which a tenant's client knows our webhooks. The only place that shows it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from agentsite.tenants.models import Tenant
from runs import signing
from runs.management import output
from runs.management.base import SiteCommand


class Command(SiteCommand):
    help = (
        "Show the key that signs a tenant's webhooks, for the program that receives them; the key alone is the last "
        "line. Where the profile names a variable of its own (webhook_secret_env), its name is shown and no key. "
        "Exit codes: 0 done, 1 failed, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant whose client receives them")
        parser.add_argument("--agent", default="refunds", help="the agent whose profile counts")
        parser.add_argument("--json", action="store_true", help='print {"secret": …} or {"variable": …, "keys": …}')

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, agent = options["tenant"], options["agent"]
        if not Tenant.objects.filter(id=tenant).exists():
            raise CommandError(f"no tenant {tenant!r}: make it with `create_tenant` or `bootstrap`")
        try:
            name, keys = signing.variable(tenant, agent), signing.keys(tenant, agent)
        except signing.NoKey as missing:
            raise CommandError(f"{tenant}: {missing}: no webhook of it can be signed") from None
        if name is not None:
            return self._named(name, len(keys), as_json=options["json"])
        if options["json"]:
            return output.data(self.stdout, {"secret": keys[0]})
        output.say(self.stdout, f"[green]✓[/green] webhooks of {tenant} are signed with (made of SECRET_KEY):")
        self.stdout.write(keys[0])
        return None

    def _named(self, name: str, keys: int, *, as_json: bool) -> None:
        if as_json:
            return output.data(self.stdout, {"variable": name, "keys": keys})
        return output.say(self.stdout, f"[green]✓[/green] signed with {keys} key{'s' if keys > 1 else ''} of {name}")
