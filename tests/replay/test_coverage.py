"""The corpus has every path: each arrow of the table, each reason, outcome and verdict, or the word why it has none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsite import env
from runs import replay
from runs.contracts import Outcome, RunState
from runs.orchestrator import endings
from runs.replay import memory
from runs.states import TRANSITIONS, On, Status, next_status
from tests.replay.test_golden import NAMES, recorded
from tools import gate

Json = dict[str, Any]
Arrow = tuple[str, str, str]
pytestmark = pytest.mark.any_database
S = Status
UNRECORDED: dict[Arrow, str] = {
    (S.ACCEPTED, On.READS_OBSERVED, S.GATHERING): "calls come from a turn, and the first turn leads to gathering",
    (S.APPROVAL_EXPIRED, On.GATE_DENIED, S.VERIFIED): "a question about a further write that expires does not wait",
    (S.APPROVAL_EXPIRED, On.MESSAGE_FOLDED, S.VERIFIED): "a question about a further write that expires does not wait",
    **{
        (s, On.FAILED, S.FAILED): "no handler makes it: no code can load such a run, and none replays it"
        for s in S
        if (s, On.FAILED) in TRANSITIONS
    },
}
"""Arrows that no recorded run can take."""
UNRULED = {
    "tool_not_in_scope": "a tool that a run was not granted is not offered, and no turn that calls it is a proposal",
    "tool_never_allowed": "no tool of the registry is of this kind",
    "tool_too_dangerous": "no tool of the registry is of this kind",
    "tool_blocked": "a record keeps the site's block at its end, not when it began",
    "secret_not_allowed": "no tool of the registry takes a placeholder, and no proposal with one is of its schema",
    "amount_not_positive": "the registry's arguments refuse such an amount before the gate",
}
"""Names of the gate's checks that deny nothing in any run that can be recorded with the registry as it is."""
SHOWN_ALONE = {"within_own_authority", "sensitive_words", "order_exists", "evidence_fresh"}
ASKS = {
    "refund_above_1000_requires_approval", "sensitive_words_require_approval", "customer_day_total_requires_approval",
    "tenant_hour_total_requires_approval",
}  # fmt: skip
OTHER_REASONS = {
    "budget_exhausted", "deadline_exceeded", "context_too_long", "no_usable_output", "repair_exhausted",
    "approval_invalid", "cancelled_by_client", "cancelled_by_staff", "over_refunded", "verification_failed",
    "refund_failed", "shadow_mode",
}  # fmt: skip
"""Those that code does not write out where it hands a run over."""
OUTCOMES = {
    "refunded", "partly_refunded", "refund_failed", "no_refund_due", "answered", "rejected", "cancelled",
    "handed_to_staff", "resolved_by_staff",
}  # fmt: skip


@pytest.fixture(scope="module")
def taken() -> set[Arrow]:
    """Every arrow that a replay of the corpus takes, those that stay where they were too."""
    found, last = set[Arrow](), dict[int, Arrow]()
    real = memory.commit

    def commit(run: RunState, outcome: Outcome, to: Status, record: Any, step: Any) -> Any:
        last[step.version] = (run.status, outcome.on, to)
        return real(run, outcome, to, record, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "commit", commit)
        for name in NAMES:
            last.clear()
            replay.play(recorded(name))
            found |= set(last.values())
    return found


def _arrows() -> Iterator[Arrow]:
    for (status, on), to in TRANSITIONS.items():
        if on is On.DEPENDENCY_BACK:
            yield from ((status, on, target) for target in to)
        else:
            yield from ((status, on, next_status(status, on, confirmed_write=yes)) for yes in (False, True))


def test_corpus_takes_every_arrow_that_a_run_can_take(taken: set[Arrow]) -> None:
    every = set(_arrows())
    assert taken <= every
    assert every - taken == set(UNRECORDED), "record a run that takes it, or say here why none can"


def _events(kind: str) -> Iterator[Json]:
    for name in NAMES:
        yield from (e for e in recorded(name)["events"] if e["type"] == kind)


def test_corpus_ends_for_every_reason() -> None:
    """Those that handlers hand a run over for, by their source; those of the gate; and the rest by name."""
    folder = Path(endings.__file__).parent
    written = {r for path in folder.glob("*.py") for r in re.findall(r'escalate\(\s*run, "(\w+)"', path.read_text())}
    known = written | set(gate.ESCALATES.values()) | OTHER_REASONS
    assert known - {recorded(name)["run"]["reason"] for name in NAMES} == set()


def test_corpus_has_every_outcome() -> None:
    assert {recorded(name)["outcome"] for name in NAMES} >= OUTCOMES


def test_corpus_has_every_verdict_of_the_gate() -> None:
    rooms = [Path(gate.__file__).with_name(f"{room}.py") for room in ("gate", "entries", "citations")]
    named = {name for path in rooms for name in re.findall(r'Check\(name="(\w+)"', path.read_text())}
    denied = {e["meta"]["rule"] for e in _events("gate.decided") if e["meta"]["decision"] == "deny"}
    assert named - denied - SHOWN_ALONE == set(UNRULED)
    assert "evidence_changed" in denied
    asked = {e["meta"]["rule"] for e in _events("gate.decided") if e["meta"]["decision"] == "needs_approval"}
    assert asked >= ASKS
    assert {e["meta"]["required"] for e in _events("gate.decided")} == {0, 1, 2}


def test_corpus_stays_small_enough_to_be_read() -> None:
    sizes = {path.stem: path.stat().st_size for path in (env.ROOT / "tests/replay/corpus").glob("*.json")}
    assert max(sizes.values()) < 128 * 1024 and sum(sizes.values()) < 4 * 1024 * 1024
