"""Door: loads a directory of policy files into a tenant's registry; the loading is `tools.policy.documents`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs.management.base import SiteCommand
from tools.errors import IndexBuilding
from tools.models import PolicyDocument
from tools.policy import embedding, index
from tools.policy.documents import PolicyError, load_directory
from tools.policy.shelf import Opened, Unusable

VECTORS_WITHIN_S = 600.0
"""Vectors that are not made by then are made later: a load waits for no slow endpoint beyond that."""


class Command(SiteCommand):
    help = (
        "Load every *.md of a directory as policies of a tenant, all or none, and build the search index of this host "
        "(others do it by themselves). Exit code 1 where a file is refused or no index can be built, 2 where the "
        "command was used wrongly."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "directory", metavar="DIR", type=Path, help="a directory of Markdown files with front matter"
        )
        parser.add_argument("--tenant", required=True, help="the tenant's id")
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.add_argument("--replace", action="store_true", help="let a stored version take another text")
        parser.add_argument(
            "--force",
            action="store_true",
            help="let a lower version that says current take over, or one come back that was superseded or withdrawn",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        directory: Path = options["directory"]
        if not directory.is_dir():
            raise CommandError(f"{directory} is no directory", returncode=2)
        try:
            pins = load_directory(directory, options["tenant"], replace=options["replace"], force=options["force"])
        except PolicyError as error:
            raise CommandError(str(error)) from None
        rows = [_row(options["tenant"], pin) for pin in pins]
        found = _indexed(options["tenant"])
        vectors = embedding.embed_missing(options["tenant"], within_s=VECTORS_WITHIN_S)
        printed = {
            "tenant": options["tenant"], "policies": rows, "index": _told(found),
            "vectors": None if vectors is None else asdict(vectors),
        }  # fmt: skip
        self.stdout.write(json.dumps(printed) if options["json"] else _table(rows, found, vectors))


def _indexed(tenant_id: str) -> Opened | None:
    try:
        return index.build_now(tenant_id)
    except Unusable as error:
        raise CommandError(f"loaded, but this host's disk takes no index: {error}") from None
    except IndexBuilding:
        raise CommandError("loaded, but another process has not come to an end with this host's index") from None


def _told(found: Opened | None) -> dict[str, Any] | None:
    return None if found is None else {"stamp": found.stamp, "passages": len(found)}


def _row(tenant_id: str, pin: str) -> dict[str, Any]:
    doc, _, version = pin.rpartition("@v")
    found = PolicyDocument.objects.get(tenant_id=tenant_id, doc_id=doc, version=int(version))
    return {"policy": pin, "status": found.status, "passages": found.passages.count(), "hash": found.content_hash}


def _table(rows: list[dict[str, Any]], found: Opened | None, vectors: embedding.Coverage | None) -> str:
    lines = [f"{r['policy']}  {r['status']}  {r['passages']} passages" for r in rows] or ["no policy file found"]
    lines += [f"{len(found)} passages are searched on this host"] if found is not None else []
    if vectors is not None:
        why = f" ({vectors.stopped}); searches make the others, some at a time" if vectors.missing else ""
        lines.append(f"{vectors.texts - vectors.missing} of {vectors.texts} texts have a vector{why}")
    return "\n".join(lines)
