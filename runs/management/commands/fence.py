"""Door: `fence`, after a database was put back: nothing asked or prepared before now moves money unlooked at."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from agentsite import clock
from runs import store
from runs.management import output
from runs.management.base import SiteCommand


class Command(SiteCommand):
    help = (
        "Fence the site after its database was restored from a backup: every open approval is void and asked anew, "
        "every open write is looked up before anything, and no write of an order goes out until its refunds were "
        "listed anew. Run it once every process of before has ended; running it again is harmless. "
        "Exit codes: 0 done, 1 failed, 2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--reason", default="", help="why (kept in the record of every run it touches)")
        parser.add_argument("--json", action="store_true", help="print the counts as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        done = store.fence(reason=options["reason"], by="shell")
        if options["json"]:
            counts = {"approvals_void": done.approvals, "writes_doubted": done.writes, "demanded": done.demanded}
            return output.data(self.stdout, {"fenced_at": clock.rfc3339(done.at), **counts})
        asked = "" if done.demanded else " Nothing had demanded it."
        output.say(
            self.stdout,
            f"[green]✓[/green] fenced at {clock.rfc3339(done.at)}: {done.approvals} approvals are void and asked anew, "
            f"{done.writes} open writes are looked up first.{asked}",
        )
        return None
