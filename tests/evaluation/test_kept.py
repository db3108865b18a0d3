"""Evaluations are kept, found again, and make a qualification only where everything that the gate asks for holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs import evaluations, qualification
from runs.evaluation import figures, preparing
from runs.evaluations import NotQualified
from runs.models import Evaluation, Qualification
from tests.evaluation.cases import ROUTE, case, result

pytestmark = pytest.mark.django_db
HARMFUL = figures.figures([case("one"), case("two", "lie", lies=["says so"])])


def test_good_evaluation_qualifies_exactly_the_model_that_answered() -> None:
    measured = result()
    row = evaluations.store(measured, by="shell")
    made = evaluations.qualify(measured, row, by="shell")
    assert (made.kind, made.ends_at, made.revoked, made.by) == ("evaluated", None, False, "shell")
    assert made.reason == f"evaluation {row.pk}: 2 of 2 of refunds as expected"
    assert Evaluation.objects.get().qualification == made
    assert qualification.find("refunds", ROUTE, "model-7-2026-11-01", manual_allowed=False) == made.pk
    for route, model in ((ROUTE, "model-7"), (ROUTE, "model-8"), ("openai:model-8", "model-7-2026-11-01"),
                         ("anthropic:model-7", "model-7-2026-11-01")):  # fmt: skip
        assert qualification.find("refunds", route, model) is None


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (lambda: result(whole=False), "only a part of the suite was run"),
        (
            lambda: result(route="scripted:/tmp/s.json"),
            "a script is no model: its file may say something else tomorrow",
        ),
        (lambda: result(figures=HARMFUL, failing=()), "1 scenarios with a forbidden effect or an untrue word"),
        (lambda: result("success", "stuck"), "thresholds were not met: success 0.500 < 0.9"),
        (lambda: result(answered=("a", "b")), "the model answered under 2 names: a, b"),
        (lambda: result(answered=()), "the model answered under 0 names: none"),
        (lambda: result(same_code=False), "the code changed while it was measured"),
        (lambda: result(prompt_hash="sha256:older"), "the prompt that was measured is not today's"),
        (lambda: result(tools_hash="sha256:older"), "the tools that were measured are not today's"),
    ],
)
def test_what_does_not_hold_refuses_the_qualification_by_name(measured: Any, words: str) -> None:
    row = evaluations.store(measured(), by="shell")
    with pytest.raises(NotQualified) as caught:
        evaluations.qualify(measured(), row, by="shell")
    assert str(caught.value) == words
    assert not Qualification.objects.filter(requested_model="model-7").exists()
    assert Evaluation.objects.get().qualification is None


def test_evaluation_is_kept_whole_and_found_by_its_suite() -> None:
    first = evaluations.store(result(), by="shell")
    other = evaluations.store(result(suite_hash="sha256:other"), by="shell")
    row = Evaluation.objects.get(pk=first.pk)
    assert (row.passed, row.answered_model, row.suite, row.release) == (True, "model-7-2026-11-01", "refunds", "0.1.0")
    assert row.figures["success"]["of"] == 2 and [c["id"] for c in row.cases] == ["case-0", "case-1"]
    assert evaluations.before(result()) == first
    assert evaluations.before(result(suite_hash="sha256:third")) == other
    assert evaluations.before(replace(result(), suite="another", suite_hash="sha256:third")) is None


def test_evaluation_that_missed_its_thresholds_is_kept_as_such() -> None:
    assert not evaluations.store(result("success", "lie"), by="shell").passed


def test_private_site_is_filled_in_its_own_database_alone(tmp_path: Path) -> None:
    file = tmp_path / "prepare.json"
    file.write_text(json.dumps({"database": "sqlite:////elsewhere.sqlite3", "password": "x", "agent": "refunds",
                                "routes": [[ROUTE, "m"]], "tenants": []}))  # fmt: skip
    with pytest.raises(preparing.NotPrivate):
        preparing.prepare(file)
    file.write_text(json.dumps({"database": None, "routes": [[ROUTE, "m"]], "tenants": []}))
    with pytest.raises(preparing.NotPrivate):
        preparing.prepare(file)
    assert not Qualification.objects.filter(requested_model="model-7").exists()
