"""`qualify`: let a model route propose writes by hand, for a while, with a reason on record."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError, CommandParser

from agentsite import clock, env
from runs import qualification
from runs.management.base import SiteCommand


class Command(SiteCommand):
    help = "Qualify a model route by hand to propose writes: 30 days, on record. Shell access stands for a superuser."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("route", metavar="ROUTE", help="PROVIDER:MODEL as in AGENT_MODELS")
        parser.add_argument("--reason", required=True, help="why it may (kept on record)")
        parser.add_argument("--answers-as", metavar="MODEL", help="the model named in its replies, where it differs")
        parser.add_argument("--by", metavar="USER", help="a superuser on whose authority (default: the shell)")
        parser.add_argument("--agent", default="refunds", help="the agent (default refunds)")
        parser.add_argument("--json", action="store_true", help="print the record as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        provider, _, model = options["route"].partition(":")
        if provider not in env.PROVIDERS or not model:
            raise CommandError(f"ROUTE: expected PROVIDER:MODEL with one of {', '.join(env.PROVIDERS)}", returncode=2)
        if not options["reason"].strip():
            raise CommandError("--reason: may not be empty", returncode=2)
        row = qualification.qualify(
            options["route"], agent=options["agent"], reason=options["reason"].strip()[:500],
            by=self._by(options["by"]), answers_as=options["answers_as"],
        )  # fmt: skip
        ends = clock.rfc3339(row.ends_at) if row.ends_at else None
        if options["json"]:
            record = {"route": options["route"], "answers_as": row.answered_model, "ends_at": ends}
            self.stdout.write(json.dumps(record))
        else:
            self.stdout.write(f"{options['route']} may propose writes for {options['agent']} until {ends}.")

    def _by(self, username: str | None) -> str:
        if username is None:
            return "shell"
        user = get_user_model().objects.filter(username=username, is_active=True, is_superuser=True).first()
        if user is None:
            raise CommandError(f"--by: {username} is no active superuser", returncode=2)
        return f"user:{user.pk}"
