"""`evaluate` as it is typed: what it refuses, what it stores, when it qualifies."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError

from runs import qualification
from runs.evaluation.running import Measured
from runs.models import Evaluation, Qualification
from tests.evaluation.cases import scenario
from tests.evaluation.test_whole_suite import BAD


def evaluate(*arguments: str) -> str:
    said = StringIO()
    call_command("evaluate", *arguments, stdout=said)
    return said.getvalue()


@pytest.mark.any_database
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--suite", "nowhere"), "--suite: nowhere: no folder"),
        (("--model", "gpt"), "--model: PROVIDER:MODEL"),
        (("--model", "offline:a,offline:b"), "--model: PROVIDER:MODEL"),
        (("--only", "nobody-*"), "--suite: refunds: no scenario is called nobody-*"),
        (("--qualify", "--no-store"), "--qualify stores what it rests on"),
        (("--suite", "a" * 5000), f"--suite: {'a' * 5000}: no folder"),
        (("--keep", __file__), f"--keep: {__file__} is no folder"),
    ],
)
def test_usage_is_refused_before_anything_runs(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(CommandError) as caught:
        evaluate(*arguments)
    assert str(caught.value).startswith(words) and caught.value.returncode == 2


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A suite of one scenario, outside the project."""
    (tmp_path / "suite.yaml").write_text("name: held-out\ntitle: Held out\n")
    (tmp_path / "a.yaml").write_text(yaml.safe_dump([scenario()]))
    return str(tmp_path)


@pytest.mark.django_db
def test_figures_that_cannot_be_stored_are_told_all_the_same(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured(
        cases=(), answered=("investigator",), template_hashes=(), code_hash="sha256:x", same_code=True
    )  # fmt: skip
    monkeypatch.setattr("runs.evaluation.running.run", lambda *_: measured)

    def gone(*_: object, **__: object) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr("runs.evaluations.store", gone)
    said = StringIO()
    with pytest.raises(CommandError, match="measured, but not stored: OperationalError"):
        call_command("evaluate", "--suite", small, "--qualify", "--json", stdout=said)
    told = json.loads(said.getvalue())
    assert (told["evaluation"], told["qualification"], told["answered"]) == (None, None, ["investigator"])
    assert not Qualification.objects.filter(reason__startswith="evaluation ").exists()


@pytest.mark.own_services
@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_good_route_is_stored_compared_and_qualified_and_a_bad_one_is_not(small: str) -> None:
    bad = f"scripted:{BAD}"
    with pytest.raises(CommandError, match="not qualified: a script is no model"):
        evaluate("--suite", small, "--model", bad, "--qualify")
    assert qualification.find("refunds", bad, str(BAD)) is None
    told = json.loads(evaluate("--suite", small, "--qualify", "--json"))
    assert (told["passed"], told["answered"], told["before"]["newly_passing"]) == (
        True, ["investigator"], ["charged-twice"],
    )  # fmt: skip
    (second, first) = Evaluation.objects.all()
    assert (first.passed, first.qualification, second.passed) == (False, None, True)
    assert first.figures["forbidden"]["count"] == 0
    made = Qualification.objects.get(pk=told["qualification"])
    assert second.qualification == made and second.pk == told["evaluation"]
    found = qualification.find("refunds", "offline:investigator", "investigator", manual_allowed=False)
    assert found == made.pk
