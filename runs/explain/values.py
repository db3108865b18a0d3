"""What is told about a run: frozen values, times as RFC 3339 text, money as its wire object. A paper: no Django."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from agentsite.text import visible
from runs import loglines
from tools.contracts import Json


@dataclass(frozen=True, kw_only=True)
class Read:
    """What was observed. `age_s`: how old it was, in seconds, when the gate last decided; None where it came later."""

    obs_id: str
    span: str
    source: str
    kind: str
    fact: str
    fetched_at: str
    age_s: float | None
    content_hash: str


@dataclass(frozen=True, kw_only=True)
class Proposed:
    """One model turn. `calls` are proposals as `(tool, args)`; `draft` the reply it wrote; `error` why none counted."""

    span: str
    at: str
    route: str
    model: str
    prompt: str
    calls: tuple[Json, ...]
    draft: str | None
    error: str | None


@dataclass(frozen=True, kw_only=True)
class Gated:
    """One decision of the gate with every check and its numbers. `erased`: these were deleted, or are archived."""

    at: str
    decision: str
    rule: str
    decision_id: str
    action_hash: str
    action: Json
    checks: tuple[Json, ...]
    facts: Json
    erased: bool


@dataclass(frozen=True, kw_only=True)
class Answered:
    by: str
    decision: str
    at: str
    reason: str
    refusal: str


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question to a person, its answers, and the tries that were turned down."""

    approval_id: str
    status: str
    amount: Json
    rule: str
    action_hash: str
    required: int
    requested_at: str
    expires_at: str
    void_reason: str
    decisions: tuple[Answered, ...]
    turned_down: tuple[Answered, ...]


@dataclass(frozen=True, kw_only=True)
class Tried:
    number: int
    prepared_at: str
    sent_at: str | None
    answered_at: str | None
    answer: str


@dataclass(frozen=True, kw_only=True)
class Wrote:
    """One write: intent, attempts and result. `look_ups` are events of asking again what came of it."""

    key: str
    tool: str
    order_id: str
    payment_id: str
    amount: Json
    state: str
    refund_id: str | None
    refund_state: str | None
    action_hash: str
    approval_id: str | None
    decision_id: str
    intent_at: str
    closed_at: str | None
    attempts: tuple[Tried, ...]
    look_ups: tuple[Json, ...]
    verification: Json | None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The causal story of one run; `answer` says it in one paragraph."""

    run_id: str
    request_id: str
    trace_id: str
    tenant_id: str
    agent: str
    status: str
    outcome: str | None
    reason: str | None
    waiting_for: str | None
    versions: Json
    created_at: str
    completed_at: str | None
    asked_by: str
    actor: Json
    goal: str
    reads: tuple[Read, ...]
    proposals: tuple[Proposed, ...]
    gate: tuple[Gated, ...]
    approvals: tuple[Asked, ...]
    writes: tuple[Wrote, ...]
    verification: Json | None
    reply: str | None
    customer_message: str
    answer: str
    erased: Mapping[str, str] = field(default_factory=dict)
    """When a class of the run's data was erased, by class."""
    archived: Mapping[str, str] = field(default_factory=dict)
    """Where the run's texts lie (`file`, `folder`) and since when (`at`); empty where they are in its rows."""

    def without_words(self) -> Explanation:
        """The part that a log carries too: ids, slugs, amounts, numbers, hashes, times and who decided.

        `why RUN` and `why --from-logs` agree on it. How old a read was is said where a gate decided on it.
        """
        said = [d.reason for a in self.approvals for d in (*a.decisions, *a.turned_down)]
        return replace(
            self, versions=loglines.spoken(self.versions), asked_by="", actor={}, goal="", customer_message="",
            reads=tuple(_read(r, aged=bool(self.gate)) for r in self.reads),
            proposals=tuple(_proposed(p) for p in self.proposals), gate=tuple(_gated(g) for g in self.gate),
            approvals=tuple(_asked(a) for a in self.approvals), writes=tuple(_wrote(w) for w in self.writes),
            verification=loglines.verification(self.verification), reply=None if self.reply is None else "",
            answer=_unsaid(self.answer, said), erased=dict.fromkeys(self.erased, ""), archived={},
        )  # fmt: skip

    def wire(self) -> Json:
        """The same as JSON values."""
        return asdict(self)


# --- what a log carries ----------------------------------------------------------------------------------------


def saying(reason: str) -> str:
    """How the answer quotes a person's reason."""
    return f", saying “{visible(reason)}”" if reason and reason != loglines.OMITTED else ""


def _unsaid(answer: str, reasons: list[str]) -> str:
    for words in filter(None, map(saying, reasons)):
        answer = answer.replace(words, "")
    return answer


def _read(r: Read, *, aged: bool) -> Read:
    return replace(
        r, fact=r.fact if loglines.has_fact(r.kind, r.source) else "", age_s=r.age_s if aged else None
    )  # fmt: skip


def _proposed(p: Proposed) -> Proposed:
    calls = tuple(loglines.calls(p.calls))
    draft = None if p.draft is None else ""
    return replace(p, route=_slug(p.route), model=_slug(p.model), calls=calls, draft=draft)


def _slug(text: str) -> str:
    return loglines.value(text) or ""


def _gated(g: Gated) -> Gated:
    return replace(g, action=loglines.action(g.action), checks=tuple(loglines.checks(g.checks)), facts={})


def _asked(a: Asked) -> Asked:
    decisions, turned_down = (
        tuple(replace(d, reason="") for d in rows) for rows in (a.decisions, a.turned_down)
    )  # fmt: skip
    return replace(a, void_reason=_slug(a.void_reason), decisions=decisions, turned_down=turned_down)


def _wrote(w: Wrote) -> Wrote:
    looks = tuple({name: loglines.value(found) for name, found in look.items()} for look in w.look_ups)
    return replace(w, look_ups=looks, verification=loglines.verification(w.verification))
