"""Door: `create_token`, a bearer token for a client program of a tenant; shown once, kept as a hash."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandError, CommandParser

from agentsite.tenants.models import Tenant
from runs.api.auth import SCOPES
from runs.management import output, staff
from runs.management.base import SiteCommand

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Command(SiteCommand):
    help = (
        "Make a token for a client program. The token alone is the last line of the output; it is never shown again. "
        "Exit codes: 0 done, 1 failed, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, help="the tenant the token is bound to")
        parser.add_argument("--name", required=True, help="the client's name, [A-Za-z0-9_.-]{1,64}")
        parser.add_argument("--scopes", default=",".join(SCOPES), help="of runs:write, runs:read, with commas")
        parser.add_argument("--json", action="store_true", help='print {"token": …} alone')

    def handle(self, *args: Any, **options: Any) -> None:
        scopes = _scopes(options["scopes"])
        if not NAME.fullmatch(options["name"]):
            raise CommandError("a name is [A-Za-z0-9_.-]{1,64}", returncode=2)
        if not Tenant.objects.filter(id=options["tenant"]).exists():
            raise CommandError(f"no tenant {options['tenant']!r}: make it with `create_tenant` or `bootstrap`")
        token = staff.make_token(tenant_id=options["tenant"], name=options["name"], scopes=scopes)
        if options["json"]:
            return output.data(self.stdout, {"token": token})
        user = f"svc-{options['tenant']}-{options['name']}"
        output.say(self.stdout, f"[green]✓[/green] token of {user} ({', '.join(scopes)}), shown this once:")
        self.stdout.write(token)
        return None


def _scopes(text: str) -> list[str]:
    asked = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [scope for scope in asked if scope not in SCOPES]
    if unknown or not asked:
        raise CommandError(f"scopes are of {', '.join(SCOPES)}", returncode=2)
    return asked
