"""Door: `create_tenant`, a tenant with a profile from a file; on one that exists, a new revision of its profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from agentsite import canonical
from agentsite.tenants import shadowing
from agentsite.tenants.profiles import TENANT_ID, Profile
from runs.management import output, tenancy
from runs.management.base import SiteCommand
from runs.management.findings import costs
from tools.contracts import Json


class Command(SiteCommand):
    help = (
        "Make a tenant with the profile of FILE (JSON). On a tenant that exists, the profile replaces the one in force "
        "for runs to come, as a new revision. Exit codes: 0 done, 1 failed, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", help="tenant id, [a-z0-9_]{1,64}")
        parser.add_argument("--profile", required=True, type=Path, metavar="FILE", help="the profile, a JSON file")
        parser.add_argument("--shadow", action="store_true", help="a new tenant begins in shadow mode, writing nothing")
        parser.add_argument("--json", action="store_true", help="print one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant: str = options["tenant"]
        if not TENANT_ID.fullmatch(tenant):
            raise CommandError("a tenant id is [a-z0-9_]{1,64}", returncode=2)
        document = _read(options["profile"])
        try:
            profile = tenancy.read_profile(document)
        except tenancy.BadProfile as error:
            raise CommandError("profile refused: " + "; ".join(error.faults)) from None
        new = self._put(tenant, shadow=options["shadow"])
        revision = tenancy.put_profile(tenant, document)
        loaded = [] if tenancy.has_policy(tenant, profile.policy_pin) else tenancy.put_policies(tenant)
        self._tell(tenant, new, revision, loaded, profile, as_json=options["json"])

    def _put(self, tenant: str, *, shadow: bool) -> bool:
        """The tenant exists; where it was asked for, a new one is in shadow mode before anybody can use it."""
        with transaction.atomic():
            new = tenancy.put_tenant(tenant)
            if shadow and not new:
                raise CommandError(f"{tenant} exists: put it into shadow mode with `manage.py shadow {tenant} --enter`")
            if shadow:
                shadowing.enter(tenant, by="shell", reason="made in shadow mode")
        return new

    def _tell(
        self, tenant: str, new: bool, revision: int | None, loaded: list[str], profile: Profile, *, as_json: bool
    ) -> None:
        self._warn(tenant, profile)
        if as_json:
            made: Json = {"tenant": tenant, "new": new, "profile_revision": revision, "policies": loaded}
            made["shadow"] = shadowing.stands(tenant)
            return output.data(self.stdout, made)
        output.say(self.stdout, f"[green]✓[/green] tenant {tenant}: {'made' if new else 'exists'}")
        words = f"revision {revision} is in force for runs to come" if revision else "unchanged"
        output.say(self.stdout, f"[green]✓[/green] profile {profile.agent}: {words}")
        if shadowing.stands(tenant):
            output.say(self.stdout, "[green]✓[/green] in shadow mode: its agent proposes and writes nothing")
        if loaded:
            output.say(self.stdout, f"[green]✓[/green] shipped policy documents loaded: {', '.join(loaded)}")
        return None

    def _warn(self, tenant: str, profile: Profile) -> None:
        if not tenancy.has_policy(tenant, profile.policy_pin):
            missing = f"the pinned policy {profile.policy_pin} is not there yet: load it with `index_policies`"
            self.stderr.write(f"warning: {missing}")
        if profile.commerce is None and tenant != tenancy.DEFAULT_TENANT:
            self.stderr.write("warning: no commerce in the profile: COMMERCE_* is used, as for the default tenant")
        if (fault := costs.currency_fault(profile)) is not None:
            self.stderr.write(f"warning: {fault}")


def _read(file: Path) -> Json:
    try:
        document = canonical.strict_loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read the profile: {error.strerror}") from None
    except (UnicodeDecodeError, canonical.NotStrictJson) as error:
        raise CommandError(f"the profile is refused: {error}") from None
    if not isinstance(document, dict):
        raise CommandError("the profile is refused: expected a JSON object")
    return document
