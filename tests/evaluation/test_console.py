"""Staff look at evaluations: the list and one whole, read-only, for those alone who may; hostile text stays text."""

from __future__ import annotations

import pytest
from django.test import Client

from runs import evaluations
from runs.models import Evaluation
from tests.evaluation.cases import case, result
from tests.operating import operator, seen

pytestmark = pytest.mark.django_db
LIST = "/admin/runs/evaluation/"
EVIL = "<script>window.ran=1</script>\u202e"


def desk() -> Client:
    return operator("auditor_1", may=("view_evaluation",), tenants=())


def stored(**changes: object) -> Evaluation:
    return evaluations.store(result("success", "forbidden", **changes), by="shell")


def test_list_shows_verdict_and_shares() -> None:
    stored()
    words = seen(desk(), LIST)
    assert "openai:model-7" in words and "Not met" in words and "1 of 2 (9.5 to 90.5 %)" in words


def test_page_shows_figures_thresholds_hashes_and_what_failed() -> None:
    bad = case("case-9", "forbidden", forbidden=["a refund made twice"], said=f"All done {EVIL}")
    row = stored(cases=[bad])
    words = seen(desk(), f"{LIST}{row.pk}/change/")
    for said in ("Thresholds not met", "harm at most 0", "sha256:suite", "sha256:code", "case-9", "a refund made twice",
                 "Forbidden effect", "500 ms", "model-7-2026-11-01", "none came of it", "0.003000 USD"):  # fmt: skip
        assert said in words, said
    page = desk().get(f"{LIST}{row.pk}/change/").content.decode()
    assert "<script>window" not in page and "\u202e" not in page


def test_page_says_which_right_came_of_it() -> None:
    good = result()
    row = evaluations.store(good, by="shell")
    evaluations.qualify(good, row, by="shell")
    assert "the route may propose writes" in seen(desk(), f"{LIST}{row.pk}/change/")


def test_nobody_sees_them_without_the_permission_and_nobody_changes_them() -> None:
    row = stored()
    stranger = operator("ops_9", may=("view_run",), tenants=())
    assert stranger.get(LIST).status_code == 403
    assert stranger.get(f"{LIST}{row.pk}/change/").status_code in (403, 404)
    assert desk().get(f"{LIST}add/").status_code == 403
    assert desk().post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert desk().get(f"{LIST}{row.pk}/history/").status_code == 302
    assert Evaluation.objects.count() == 1
