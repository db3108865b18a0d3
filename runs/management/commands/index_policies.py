"""Door: loads a directory of policy files into a tenant's registry; the loading is `tools.policy.documents`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs.management.base import SiteCommand
from tools.models import PolicyDocument
from tools.policy.documents import PolicyError, load_directory


class Command(SiteCommand):
    help = (
        "Load every *.md of a directory as policies of a tenant: all or none. Exit code 1 where a file is refused, "
        "2 where the command was used wrongly."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "directory", metavar="DIR", type=Path, help="a directory of Markdown files with front matter"
        )
        parser.add_argument("--tenant", required=True, help="the tenant's id")
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.add_argument("--replace", action="store_true", help="let a stored version take another text")
        parser.add_argument("--force", action="store_true", help="let a lower version that says current take over")

    def handle(self, *args: Any, **options: Any) -> None:
        directory: Path = options["directory"]
        if not directory.is_dir():
            raise CommandError(f"{directory} is no directory", returncode=2)
        try:
            pins = load_directory(directory, options["tenant"], replace=options["replace"], force=options["force"])
        except PolicyError as error:
            raise CommandError(str(error)) from None
        rows = [_row(options["tenant"], pin) for pin in pins]
        self.stdout.write(
            json.dumps({"tenant": options["tenant"], "policies": rows}) if options["json"] else _table(rows)
        )


def _row(tenant_id: str, pin: str) -> dict[str, Any]:
    doc, _, version = pin.rpartition("@v")
    found = PolicyDocument.objects.get(tenant_id=tenant_id, doc_id=doc, version=int(version))
    return {"policy": pin, "status": found.status, "passages": found.passages.count(), "hash": found.content_hash}


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{r['policy']}  {r['status']}  {r['passages']} passages" for r in rows]
    return "\n".join(lines) or "no policy file found"
