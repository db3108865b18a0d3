"""Door: `bootstrap`, everything a new installation needs before its first run. Safe to repeat."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs import qualification
from runs.management import output, staff, tenancy
from runs.management.base import SiteCommand
from runs.management.schema import missing_migrations


class Command(SiteCommand):
    help = (
        "Make the default tenant t_acme_in with its refunds profile, policy POL-REF-004, groups and permissions, and "
        "qualify the offline model. Idempotent: what exists is kept. Exit codes: 0 done, 1 failed, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if missing_migrations():
            raise CommandError("migrations are missing: run `manage.py migrate` first")
        done = self._done()
        if options["json"]:
            return output.data(self.stdout, done)
        for name, made in done.items():
            output.say(self.stdout, f"[green]✓[/green] {name.replace('_', ' ')}: {_words(made)}")
        return None

    def _done(self) -> dict[str, Any]:
        tenant = tenancy.DEFAULT_TENANT
        new = tenancy.put_tenant(tenant)
        revision = None
        if not tenancy.has_profile(tenant, "refunds"):
            revision = tenancy.put_profile(tenant, tenancy.DEFAULT_PROFILE)
        return {
            "tenant": tenant if new else None,
            "profile_revision": revision,
            "policies": tenancy.put_policies(tenant),
            "groups": staff.put_groups(),
            "qualified": qualification.ensure_offline(),
        }


def _words(made: object) -> str:
    if made in (None, False, []):
        return "as it was"
    if isinstance(made, list):
        return ", ".join(map(str, made))
    return "made" if made is True else str(made)
