"""Door: asks a tenant's policies a question, as a run would; the searching is `tools.policy.search`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.text import Text

from agentsite.tenants.models import Tenant
from agentsite.text import visible
from runs.management import output
from runs.management.base import SiteCommand
from tools.arguments import MOST_PASSAGES
from tools.contracts import Json, PassageRef
from tools.errors import IndexBuilding
from tools.policy import index
from tools.policy.search import Passage, search
from tools.policy.shelf import Unusable


class Command(SiteCommand):
    help = (
        "Search a tenant's policies: passages best first, all current or, where nothing current matches, all "
        "superseded; none where no word matches. Builds the index of this host where it is not ready. "
        "Exit code 1 where there is no such tenant or no index can be had, 2 where the command was used wrongly."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("text", metavar="TEXT", help="what is asked, in plain words")
        parser.add_argument("--tenant", required=True, help="the tenant's id")
        parser.add_argument("--limit", type=int, default=MOST_PASSAGES, help=f"at most so many, 1 to {MOST_PASSAGES}")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant_id, limit = options["tenant"], options["limit"]
        if not 1 <= limit <= MOST_PASSAGES:
            raise CommandError(f"--limit is 1 to {MOST_PASSAGES}", returncode=2)
        if not Tenant.objects.filter(id=tenant_id).exists():
            raise CommandError(f"there is no tenant {tenant_id}")
        found = _found(tenant_id, options["text"], limit)
        if options["json"]:
            output.data(self.stdout, {"tenant": tenant_id, "passages": [_row(passage) for passage in found]})
        else:
            self._print(found)

    def _print(self, found: list[Passage]) -> None:
        if not found:
            return output.say(self.stdout, "no passage matches")
        for passage in found:
            grid = output.grid(8, None)
            grid.add_row(f"{passage.score:.4f}", Text(_place(passage), style="bold"))
            grid.add_row("", Text(visible(" ".join(passage.text.split())[:200])))
            output.show(self.stdout, grid)
        return None


def _found(tenant_id: str, text: str, limit: int) -> list[Passage]:
    try:
        index.build_now(tenant_id)
        return search(tenant_id, text, pin="", limit=limit)
    except Unusable as error:
        raise CommandError(f"this host's disk takes no index: {error}") from None
    except IndexBuilding:
        raise CommandError("the index is still being built: try again in a moment") from None


def _row(passage: Passage) -> Json:
    """`id` names the passage as the record of a run does."""
    ref = PassageRef(
        doc=passage.doc, version=passage.version, content_hash=passage.content_hash, current=passage.current
    )
    told = passage.wire()
    del told["text"]
    return {"id": ref.name, **told}


def _place(passage: Passage) -> str:
    mark = "" if passage.current else "  (superseded)"
    return f"{visible(passage.doc)}@v{passage.version}  {visible(passage.section)}{mark}"
