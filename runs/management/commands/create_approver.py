"""Door: `create_approver`, a member of staff who may decide a tenant's approvals."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from agentsite import env
from agentsite.tenants.models import Tenant
from runs.management import output, staff
from runs.management.base import SiteCommand


class Command(SiteCommand):
    help = (
        "Make a staff user who sees the tenant and may approve and reject. The password is APPROVER_PASSWORD, else "
        "made and printed once. On a user who exists, the rights are set as given and the password changes only where "
        "APPROVER_PASSWORD is set. Exit codes: 0 done, 1 failed, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--tenant", required=True)
        parser.add_argument("--large", action="store_true", help="may decide above the second threshold")
        parser.add_argument("--settle", action="store_true", help="may settle writes whose end is unknown")
        parser.add_argument("--json", action="store_true", help="print one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        username, tenant = options["username"], options["tenant"]
        self._check(username, tenant)
        given = env.secret("APPROVER_PASSWORD")
        password = given.get_secret_value() if given is not None else None
        self._warn(password)
        made = staff.put_approver(
            username, tenant_id=tenant, large=options["large"], settle=options["settle"], password=password
        )
        if options["json"]:
            return output.data(self.stdout, {"username": username, "tenant": tenant, "password": made})
        output.say(self.stdout, f"[green]✓[/green] {username} may decide approvals of {tenant}{_rights(options)}")
        if made:
            output.say(self.stdout, "password, shown this once:")
            self.stdout.write(made)
        return None

    def _check(self, username: str, tenant: str) -> None:
        try:
            User.username_validator(username)
        except ValidationError:
            raise CommandError("a username has letters, digits and @.+-_ only", returncode=2) from None
        if len(username) > 150 or username.startswith("svc-"):
            raise CommandError("a username has at most 150 characters and does not begin with svc-", returncode=2)
        if not Tenant.objects.filter(id=tenant).exists():
            raise CommandError(f"no tenant {tenant!r}: make it with `create_tenant` or `bootstrap`")

    def _warn(self, password: str | None) -> None:
        if password is None:
            return
        try:
            validate_password(password)
        except ValidationError as error:
            # Whoever has this shell may set any password; a weak one is said, not refused.
            self.stderr.write(f"warning: weak APPROVER_PASSWORD: {' '.join(error.messages)}")


def _rights(options: dict[str, Any]) -> str:
    more = [words for name, words in (("large", "large amounts"), ("settle", "settling writes")) if options[name]]
    return f", with {' and '.join(more)}" if more else ""
