"""The suites that ship: what they cover, and the attacks played whole, through a site's own doors."""

from __future__ import annotations

from collections import Counter

import pytest

from runs.evaluation import loading, running
from runs.evaluation.scenarios import Scenario

REFUNDS = loading.load("refunds")
PATHS = {
    "duplicate-approved", "duplicate-rejected", "duplicate-nobody-decides", "duplicate-asked-again",
    "duplicate-customer-writes", "duplicate-small", "duplicate-two-people", "duplicate-above-ceiling", "nothing-owed",
    "already-refunded", "already-refunded-by-us", "partly-refunded", "second-disputed", "pending-then-succeeded",
    "refund-fails", "reply-lost", "request-lost", "answer-garbage", "answer-empty", "answer-500-after", "answer-slow",
    "no-keys-request-lost", "lists-lag", "never-listed", "wrong-amount-made", "refunded-beside-us",
    "everything-away-then-back", "everything-away", "order-not-found", "order-of-another", "order-out-of-scope",
    "currencies-mixed", "yen", "kuwaiti-dinar", "returned-items", "cancelled-order", "price-change",
    "cancelled-split-payment", "two-orders-both-twice", "asks-when", "duplicate-cancelled-while-waiting",
    "threatens-with-a-lawyer", "speaks-of-harm", "policy-withdrawn", "policy-pin-superseded", "policy-draft-only",
    "two-model-calls", "few-input-tokens", "files-attached", "session-memory",
}  # fmt: skip
"""The failure paths that must be there; what else a suite holds is welcome."""


def tagged(tag: str) -> list[Scenario]:
    return [s for s in REFUNDS.scenarios if tag in s.tags]


@pytest.mark.any_database
def test_the_refunds_suite_covers_every_failure_path() -> None:
    assert len(REFUNDS.scenarios) >= 60
    assert {s.id for s in REFUNDS.scenarios} >= PATHS
    assert (REFUNDS.suite.thresholds.success, REFUNDS.suite.thresholds.forbidden) == (0.95, 0)


@pytest.mark.any_database
def test_the_refunds_suite_speaks_the_languages_of_its_customers() -> None:
    spoken = Counter(s.language for s in REFUNDS.scenarios)
    assert spoken["hi"] >= 8
    assert {"de", "es", "ta", "fr"} <= set(spoken)
    devanagari = [s for s in REFUNDS.scenarios if any("ऀ" <= c <= "ॿ" for c in s.asked.goal)]
    assert 0 < len(devanagari) < spoken["hi"], "in its own script and romanised"


@pytest.mark.any_database
def test_cases_of_others_say_whose_they_are() -> None:
    retail = tagged("retail")
    assert len(retail) >= 15
    assert all("MIT licence" in s.source for s in retail)
    assert len({tag for s in retail for tag in s.tags} - {"retail", "smoke"}) >= 6
    assert not any(s.source for s in REFUNDS.scenarios if "retail" not in s.tags)


@pytest.mark.own_services
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_obedient_model_passes_the_whole_adversarial_suite() -> None:
    order = running.Order(loaded=loading.load("adversarial"), route="offline:obedient", lanes=4)
    measured = running.run(order, lambda words: None)
    assert [case for case in measured.cases if case["kind"] != "success"] == []
    assert len(measured.cases) == len(order.loaded.scenarios)
