"""A suite is read whole or not at all, and what is wrong with it is named by file, scenario and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from runs.evaluation import loading
from runs.evaluation.loading import BadSuite, load
from runs.evaluation.scenarios import Scenario
from tests.evaluation.cases import scenario

pytestmark = pytest.mark.any_database


def suite(folder: Path, *scenarios: Any, head: str = "name: small\ntitle: Small\n") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "suite.yaml").write_text(head)
    (folder / "a.yaml").write_text(yaml.safe_dump(list(scenarios)))
    return folder


def test_suite_is_read_and_its_hash_is_of_what_it_says(tmp_path: Path) -> None:
    first = load(str(suite(tmp_path / "x", scenario("a"), scenario("b"))))
    again = load(str(suite(tmp_path / "y", scenario("b"), scenario("a"))))
    other = load(str(suite(tmp_path / "z", scenario("a"), scenario("b", title="Another"))))
    strict = load(str(suite(tmp_path / "s", scenario("a"), scenario("b"), head="name: small\ntitle: Small\n"
                            "thresholds: {success: 0.5}\n")))  # fmt: skip
    assert [s.id for s in first.scenarios] == ["a", "b"] and first.suite.thresholds.success == 0.95
    assert first.hash == again.hash and len({first.hash, other.hash, strict.hash}) == 3


def test_choosing_makes_another_suite(tmp_path: Path) -> None:
    whole = load(str(suite(tmp_path, scenario("pay-a", tags=["x"]), scenario("pay-b"), scenario("c"))))
    assert whole.whole and whole.chosen().whole and whole.chosen().hash == whole.hash
    assert [s.id for s in whole.chosen(only="pay-*").scenarios] == ["pay-a", "pay-b"]
    part = whole.chosen(only="pay-*", tag="x")
    assert [s.id for s in part.scenarios] == ["pay-a"] and not part.whole and part.hash != whole.hash
    with pytest.raises(BadSuite, match="no scenario is called nobody"):
        whole.chosen(only="nobody")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"expectd": {}}, "a.yaml: a: expectd: Extra inputs are not permitted"),
        ({"acts": [{"when": "noon", "do": "approve"}]}, "a.yaml: a: acts.0.when: Input should be"),
        ({"profile": {"queue_ownr": "x"}}, "a.yaml: a: queue_ownr: Extra inputs"),
        ({"profile": {"commerce": {"url": "http://elsewhere"}}}, "a.yaml: a: profile.commerce: only honours_keys"),
        ({"asked": {"goal": "", "customer_id": "c"}}, "a.yaml: a: asked.goal: String should have at least 1"),
        ({"asked": {"goal": "x", "customer_id": "c d"}}, "a.yaml: a: actor.customer_id:"),
        ({"expected": {"status": ["completed"], "refunds": [{"payment_id": "p", "amount": {
            "amount": "1.5", "currency": "JPY"}}]}}, "a.yaml: a: expected.refunds.0.amount: amount:"),
        ({"id": "No Slug"}, "a.yaml: No Slug: id: String should match"),
    ],
)  # fmt: skip
def test_fault_is_named_by_file_scenario_and_field(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSuite) as caught:
        load(str(suite(tmp_path, {**scenario("a"), **change})))
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "a.yaml: while parsing"),
        ("- id: !!int abc\n", "a.yaml: invalid literal for int()"),
        ("- id: !!timestamp abc\n", "a.yaml: 'NoneType' object"),
        (f"- id: {'9' * 5000}\n", "a.yaml: Exceeds the limit"),
        ("[" * 3000, "a.yaml: maximum recursion depth"),
        ("a: 1\n", "a.yaml: expected a list of scenarios"),
        ("- {id: a, id: b}\n", "a.yaml: a key is there twice"),
        ("[]\n", "holds no scenario"),
        ("- 7\n", "a.yaml: scenario 1: document:"),
        ("- !!python/object/apply:os.getcwd []\n", "a.yaml: could not determine a constructor"),
    ],
)
def test_file_that_is_no_list_of_scenarios_is_refused(tmp_path: Path, text: str, words: str) -> None:
    folder = suite(tmp_path)
    (folder / "a.yaml").write_text(text)
    with pytest.raises(BadSuite) as caught:
        load(str(folder))
    assert words in str(caught.value)


def test_same_id_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = suite(tmp_path, scenario("a"))
    (folder / "b.yaml").write_text(yaml.safe_dump([scenario("a")]))
    with pytest.raises(BadSuite, match="id: a is there twice"):
        load(str(folder))


def test_suite_that_is_not_there_is_named() -> None:
    with pytest.raises(BadSuite, match=r"nowhere: no folder with a suite.yaml, and no suite of that name ships"):
        load("nowhere")


def test_head_with_a_fault_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSuite, match=r"suite.yaml: thresholds.success: Input should be less than or equal to 1"):
        load(str(suite(tmp_path, scenario(), head="name: a\ntitle: A\nthresholds: {success: 95}\n")))


def test_times_stay_text_and_anchors_are_followed(tmp_path: Path) -> None:
    folder = suite(tmp_path)
    one = yaml.safe_dump([scenario("a")]).replace("'2026-11-20T09:30:00.000Z'", "2026-11-20T09:30:00.000Z")
    (folder / "a.yaml").write_text(one.replace("  business:\n", "  business: &known\n") + "- <<: &rest {title: B}\n"
                                   "  id: b\n  asked: {goal: Hello, customer_id: c}\n  business: *known\n"
                                   "  expected: {status: [completed]}\n")  # fmt: skip
    found = load(str(folder)).scenarios
    assert found[0].business.payments[0]["captured_at"] == "2026-11-20T09:30:00.000Z"
    assert (found[1].title, found[1].business) == ("B", found[0].business)


def test_profile_is_the_default_one_with_changes_and_a_business_system() -> None:
    changed = scenario(profile={"approval_ttl_s": 3, "commerce": {"honours_keys": False}})
    found = loading.profile(Scenario.model_validate(changed), "http://127.0.0.1:1")
    assert (found["approval_ttl_s"], found["policy_pin"]) == (3, "POL-REF-004@v4")
    assert found["commerce"] == {
        "url": "http://127.0.0.1:1", "read_token_env": "COMMERCE_READ_TOKEN", "write_token_env": "COMMERCE_WRITE_TOKEN",
        "honours_keys": False, "settle_s": 1,
    }  # fmt: skip


def test_shipped_suite_is_whole_and_large() -> None:
    found = load("refunds")
    assert len(found.scenarios) >= 60 and any(s.language == "hi" for s in found.scenarios)
    assert found.hash == load(str(loading.SUITES / "refunds")).hash
