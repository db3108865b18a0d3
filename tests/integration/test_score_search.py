"""`score_search`: the figures of a file of documents and of a tenant's own policies, and what it refuses."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agentsite.tenants.models import Tenant
from tests import search_quality
from tests.conftest import Say
from tools.policy.documents import load

T, OTHER = "t_acme_in", "t_other"
TEXTS = (
    ("POL-REF", "Refunds", "## When\n\nA refund takes five days.\n\n## Fee\n\nA restocking fee of 10 % is kept."),
    ("POL-DEL", "Delivery", "## Parcels\n\nParcels are sent daily.\n\n## Late\n\nA late parcel is traced."),
    ("POL-PAY", "Payments", "## Cards\n\nCards are charged on delivery."),
)
QUESTIONS = (
    ("q1", "How long does my refund take?", ["POL-REF"]),
    ("q2", "When are cards charged?", ["POL-PAY", "POL-GONE"]),
    ("q3", "zeppelin", ["POL-DEL"]),
)


def scored(*arguments: object, **options: Any) -> dict[str, Any]:
    out = StringIO()
    call_command("score_search", *map(str, arguments), "--json", stdout=out, **options)
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return lines(tmp_path / "queries.jsonl", [{"id": i, "query": q, "relevant": r} for i, q, r in QUESTIONS])


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return lines(tmp_path / "documents.jsonl", [{"id": i, "title": t, "text": x} for i, t, x in TEXTS])


def policy(doc: str, title: str, body: str) -> str:
    return f"---\nid: {doc}\nversion: 1\ntitle: {json.dumps(title)}\nstatus: current\n---\n\n{body}\n"


def load_all(tenant: str = T) -> None:
    Tenant.objects.get_or_create(id=tenant)
    for doc, title, body in TEXTS:
        load(tenant, policy(doc, title, body))


@pytest.mark.any_database
def test_score_search_of_a_file_needs_no_database(questions: Path, documents: Path) -> None:
    # One of two right documents is first: 1 of 1 + 1 / log2(3).
    told = scored(questions, "--documents", documents)
    assert told.pop("each") == [
        {"id": "q1", "ndcg@10": 1.0, "recall@10": 1.0, "mrr": 1.0},
        {"id": "q2", "ndcg@10": 0.6131, "recall@10": 0.5, "mrr": 1.0},
        {"id": "q3", "ndcg@10": 0.0, "recall@10": 0.0, "mrr": 0.0},
    ]
    assert told == {
        "ndcg@10": 0.5377, "recall@10": 0.5, "mrr": 0.6667, "questions": 3, "documents": 3, "unknown_documents": 1,
    }  # fmt: skip
    assert scored(questions)["ndcg@10"] == told["ndcg@10"]  # the documents beside it


@pytest.mark.any_database
def test_score_search_prints_for_people(questions: Path, documents: Path) -> None:
    out = StringIO()
    call_command("score_search", str(questions), stdout=out)
    assert out.getvalue().splitlines()[:2] == ["ndcg@10            0.5377", "recall@10          0.5"]


@pytest.mark.django_db
def test_score_search_of_a_tenant_is_that_of_its_own_policies_alone(questions: Path, documents: Path) -> None:
    load_all()
    load(T, policy("POL-DRAFT", "Refund takes", "A refund takes").replace("current", "draft"))
    Tenant.objects.create(id=OTHER)
    assert scored(questions, "--tenant", T) == scored(questions, "--documents", documents)
    nothing = scored(questions, "--tenant", OTHER)
    assert (nothing["ndcg@10"], nothing["mrr"], nothing["documents"]) == (0.0, 0.0, 0)
    assert nothing["unknown_documents"] == 4


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nowhere.jsonl",), 2, "nowhere.jsonl: cannot be read: FileNotFoundError"),
        (("nowhere.jsonl", "--tenant", T), 2, "cannot be read: FileNotFoundError"),
        (("{questions}",), 2, "no documents.jsonl stands beside"),
        (("{questions}", "--tenant", "t_nobody"), 1, "there is no tenant t_nobody"),
        (("{questions}", "--documents", "{questions}"), 2, "line 1: title: Field required"),
        (
            ("{questions}", "--documents", "{questions}", "--tenant", T),
            1,
            "not allowed with argument",
        ),  # 2 from a shell
        (("{broken}", "--tenant", T), 2, "cannot be read: UnicodeDecodeError"),
        (("{empty}", "--tenant", T), 2, "holds no line to score"),
        (("{questions}", "--documents", "{huge}"), 2, "document d1: text: less to keep together"),
    ],
)
def test_score_search_fails_with_its_exit_codes(
    questions: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    places = {
        "questions": questions,
        "broken": tmp_path / "broken",
        "empty": tmp_path / "empty",
        "huge": tmp_path / "huge",
    }
    places["broken"].write_bytes(b'{"id": "\xff"}')
    places["empty"].write_text("")
    places["huge"].write_text(json.dumps({"id": "d1", "title": "t", "text": "a\n" * 30_000}))
    with pytest.raises(CommandError) as failed:
        scored(*(argument.format(**places) for argument in arguments))
    assert says in str(failed.value)
    assert failed.value.returncode == code


@pytest.mark.django_db
@pytest.mark.long
@pytest.mark.skipif(not search_quality.CASES.is_dir(), reason="../shared/cases/kb is not there")
def test_score_search_of_a_tenant_with_hundreds_of_documents_is_that_of_the_file(tmp_path: Path, say: Say) -> None:
    Tenant.objects.create(id=T)
    # Their own ids are longer than a policy's may be, and have brackets in them.
    named = {text.id: f"KB-{n:03}" for n, text in enumerate(search_quality.texts())}
    for text in search_quality.texts():
        load(T, policy(named[text.id], text.title, text.text))
    rows = [
        {"id": one.id, "query": one.query, "relevant": [named[d] for d in one.relevant]}
        for one in search_quality.asked()
    ]
    told = scored(lines(tmp_path / "q.jsonl", rows), "--tenant", T)
    of_file = scored(search_quality.CASES / "queries.jsonl")
    say(f"nDCG@10 {told['ndcg@10']}, of the file {of_file['ndcg@10']}")
    assert (told["documents"], told["unknown_documents"]) == (698, 0)
    assert told == of_file
