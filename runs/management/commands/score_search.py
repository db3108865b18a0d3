"""Door: measures a search on questions with known answers; the arithmetic is `tools.policy.scoring`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from django.core.management.base import CommandError, CommandParser

from agentsite.tenants.models import Tenant
from runs.management import output
from runs.management.base import SiteCommand
from tools.contracts import Json
from tools.errors import IndexBuilding
from tools.models import PolicyDocument
from tools.policy import index, scoring, search
from tools.policy.scoring import AT, NotScorable, Question, Score
from tools.policy.shelf import Unusable

BESIDE = "documents.jsonl"
BUILDING = "the index is still being built: try again in a moment"
Rank = Callable[[str], Iterable[str]]
Found = TypeVar("Found")


class Command(SiteCommand):
    help = (
        f"Score a search: nDCG@{AT}, recall@{AT} and MRR over the questions of FILE, one JSON object a line with id, "
        "query and relevant (document ids). Of a tenant's own policies, or by words alone and without a database of "
        f"--documents, one JSON object a line with id, title and text ({BESIDE} beside FILE, where neither is given). "
        "Exit code 1 where there is no such tenant or no index can be had, 2 where the command or a file is wrong."
    )
    needs_database = False  # only a tenant's search does

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="the questions")
        among = parser.add_mutually_exclusive_group()
        among.add_argument("--tenant", help="score the search of this tenant's policies")
        among.add_argument("--documents", metavar="FILE", type=Path, help="score the ranking of these documents")
        parser.add_argument(
            "--json", action="store_true", help="print one JSON document, each question's score with it"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        asked = _lines_of(options["file"], scoring.questions)
        rank, known = _of_tenant(options["tenant"]) if options["tenant"] else _of_file(_documents(options))
        scores = {one.id: scoring.score(rank(one.query), one.relevant) for one in asked}
        told = _told(asked, scores, known)
        if options["json"]:
            each = [{"id": name, **one.wire()} for name, one in scores.items()]
            return output.data(self.stdout, {**told, "each": each})
        return self.stdout.write("\n".join(f"{name:<18} {value}" for name, value in told.items()))


def _told(asked: list[Question], scores: dict[str, Score], known: set[str]) -> Json:
    unknown = {document for one in asked for document in one.relevant} - known
    return {
        **scoring.mean(list(scores.values())).wire(),
        "questions": len(asked), "documents": len(known), "unknown_documents": len(unknown),
    }  # fmt: skip


def _documents(options: dict[str, Any]) -> Path:
    path: Path = options["documents"] or options["file"].with_name(BESIDE)
    if options["documents"] is None and not path.is_file():
        raise CommandError(f"give --tenant or --documents: no {BESIDE} stands beside the questions", returncode=2)
    return path


def _of_file(path: Path) -> tuple[Rank, set[str]]:
    texts = _lines_of(path, scoring.documents)
    try:
        return scoring.by_words(texts), {text.id for text in texts}
    except NotScorable as error:
        raise CommandError(f"{path}: {error}", returncode=2) from None


def _of_tenant(tenant_id: str) -> tuple[Rank, set[str]]:
    if not Tenant.objects.filter(pk=tenant_id).exists():
        raise CommandError(f"there is no tenant {tenant_id}")
    try:
        index.build_now(tenant_id)
    except Unusable as error:
        raise CommandError(f"this host's disk takes no index: {error}") from None
    except IndexBuilding:
        raise CommandError(BUILDING) from None
    known = PolicyDocument.objects.filter(tenant_id=tenant_id).exclude(status="draft").values_list("doc_id", flat=True)
    return lambda question: [found.doc for found in _search(tenant_id, question)], set(known)


def _search(tenant_id: str, question: str) -> list[search.Passage]:
    try:
        return search.search(tenant_id, question, pin="", limit=scoring.PASSAGES)
    except IndexBuilding:
        raise CommandError(BUILDING) from None


def _lines_of(path: Path, read: Callable[[Iterable[str]], list[Found]]) -> list[Found]:
    try:
        with path.open(encoding="utf-8") as lines:
            return read(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: cannot be read: {type(error).__name__}", returncode=2) from None
    except NotScorable as error:
        raise CommandError(f"{path}: {error}", returncode=2) from None
