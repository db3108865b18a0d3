"""Door: what every command of ours shares: one clear line instead of a traceback, exit codes 0, 1, 2 and 130."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError

from runs.management import schema

INTERRUPTED = 130
OUR_CHECKS = ["agentsite"]
"""What a command is held to before it runs. Django's own checks load every page of the site, which takes most of a
command's time: they are `manage.py check`, and those of the processes that serve pages."""


class SiteCommand(BaseCommand):
    """A command that says what is wrong with the database instead of showing where our code noticed."""

    needs_database = True
    requires_system_checks = OUR_CHECKS

    def execute(self, *args: Any, **options: Any) -> str | None:
        _print_anywhere()
        away = schema.unreachable() if self.needs_database else None
        if away is not None:
            raise CommandError(away)
        try:
            return super().execute(*args, **options)
        except (DatabaseError, InterfaceError) as error:
            words = schema.fault()
            if words is None:
                raise  # the database is whole: a bug of ours, and its traceback is wanted
            raise CommandError(words) from error
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None


def _print_anywhere() -> None:
    """A terminal that cannot show a sign gets a question mark, not an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and (stream.encoding or "").lower() not in ("utf-8", "utf8"):
            reconfigure(errors="replace")
