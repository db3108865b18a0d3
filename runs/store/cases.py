"""Earlier cases of a tenant as precedents: what was done once, never a fact of another run. Writes nothing.

Part of the store; of the zones it knows the ranking of texts alone, which knows no row. Of another customer's case it
shows how it went and nothing that he, a model or a system wrote or that names anything of his: no id, no amount, no
time, no word; nor can it be found by a word that only a few use, so that nobody learns by asking who wrote one. A case
that lost any class of its data is no case any more, from that commit on.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet, TextField
from django.db.models.functions import Cast

from agentsite import clock
from agentsite.money import Money
from approvals.erasing import readable
from runs.models import Event, Observation, Run, RunOrder, Write
from runs.states import TERMINAL
from tools.arguments import MOST_PASSAGES
from tools.contracts import Json
from tools.policy import ranking

RESOLVED = ("refunded", "partly_refunded", "no_refund_due", "answered", "rejected", "resolved_by_staff")
"""Outcomes of cases that came to an end of their own: neither cancelled nor left to staff."""
ENDED = sorted(status.value for status in TERMINAL)
NEWEST = 500
"""How many of a tenant's resolved cases are looked through; older ones are no precedents."""
MAX_READ = 2_000
"""Characters of a request by which its case is found: a look through 500 of the longest would take seconds."""
ENOUGH_CUSTOMERS = 3
"""How many other customers must use a word before it finds their cases."""
NEWEST_OF_CUSTOMER, MOST_OF_SESSION = 100, 5
MAX_REQUEST, MAX_STEPS, MAX_ORDERS, MAX_WRITES, MAX_RULES = 600, 24, 20, 8, 8
_SLUG = re.compile(r"[a-z][a-z0-9_]{0,63}")
_WORD = re.compile(r"\w+")
COLUMNS = ("id", "customer_id", "request_id", "status", "outcome", "reason", "completed_at")


@dataclass(frozen=True, kw_only=True)
class _Case:
    """An ended run by its own columns, and what of its contract a precedent is made of."""

    row: Json
    goal: str
    session_id: str | None
    policy: str
    tools: frozenset[str]


def like(tenant_id: str, customer_id: str, run_id: str, query: str) -> list[Json]:
    """Resolved cases whose request is like the query, best first, at most MOST_PASSAGES; never the run that asks."""
    cases = list(_readable(_unerased(tenant_id, run_id).filter(outcome__in=RESOLVED)[:NEWEST]))
    texts = _findable(cases, customer_id)
    ranker = ranking.in_memory(
        ranking.Entry(key=key, title="", section="", text=text) for key, text in enumerate(texts)
    )
    best = ranker.search(" ".join(_words(query)), MOST_PASSAGES) if cases else []
    return _precedents(tenant_id, customer_id, [cases[key] for key, _ in best])


def of_session(tenant_id: str, customer_id: str, session_id: str, run_id: str) -> list[Json]:
    """Earlier ended runs of the same customer's session, the newest first, at most MOST_OF_SESSION."""
    newest = _unerased(tenant_id, run_id).filter(customer_id=customer_id)[:NEWEST_OF_CUSTOMER]
    mine = [case for case in _readable(newest) if case.session_id == session_id]
    return _precedents(tenant_id, customer_id, mine[:MOST_OF_SESSION])


# --- by which words a case is found --------------------------------------------------------------------------------


def _findable(cases: Sequence[_Case], customer_id: str) -> list[str]:
    """What each case may be found by: his own by all their words, the others by those that enough customers use."""
    words = [_words(case.goal[:MAX_READ]) for case in cases]
    used: dict[str, set[str]] = defaultdict(set)
    for case, mine in zip(cases, words, strict=True):
        if case.row["customer_id"] != customer_id:
            used[case.row["customer_id"]].update(mine)
    customers = Counter(word for theirs in used.values() for word in theirs)
    return [
        " ".join(w for w in mine if case.row["customer_id"] == customer_id or customers[w] >= ENOUGH_CUSTOMERS)
        for case, mine in zip(cases, words, strict=True)
    ]


def _words(text: str) -> list[str]:
    """Without ids and amounts, which make no two cases alike."""
    return [word for word in _WORD.findall(text.lower()) if not any(map(str.isdigit, word))]


# --- which cases there are -------------------------------------------------------------------------------------


def _unerased(tenant_id: str, run_id: str) -> QuerySet[Run]:
    """Ended runs of which nothing was erased, the newest first."""
    kept = Run.objects.filter(
        tenant_id=tenant_id, status__in=ENDED, conversation_erased_at=None, evidence_erased_at=None
    )
    return kept.exclude(pk=run_id).order_by("-created_at", "-id")


def _readable(runs: QuerySet[Run]) -> Iterator[_Case]:
    """Each by the text of its contract: one that nobody can read spoils no other."""
    for row in runs.annotate(text=Cast(F("contract"), TextField())).values(*COLUMNS, "text"):
        case = readable(_case, row, None)
        if case is not None:
            yield case


def _case(row: Json) -> _Case:
    contract = json.loads(row["text"])
    scope = contract["scope"]
    granted = (*scope["read_tools"], *scope["write_tools"], *scope.get("people_tools", ()))
    return _Case(
        row={name: row[name] for name in COLUMNS}, goal=str(contract["goal"]),
        session_id=contract["actor"].get("session_id"), policy=str(contract["policy_version_pin"]),
        tools=frozenset(str(name) for name in granted),
    )  # fmt: skip


# --- what of them is shown ---------------------------------------------------------------------------------------


def _precedents(tenant_id: str, customer_id: str, cases: Sequence[_Case]) -> list[Json]:
    shown = (readable(lambda case: _precedent(tenant_id, customer_id, case), case, None) for case in cases)
    return [precedent for precedent in shown if precedent is not None]


def _precedent(tenant_id: str, customer_id: str, case: _Case) -> Json:
    same = case.row["customer_id"] == customer_id
    labels = {"precedent": True, "tenant": tenant_id, "same_customer": same}
    return {**labels, **_course(case), **(_personal(case) if same else {})}


def _course(case: _Case) -> Json:
    """How it went, in words of ours alone: statuses, slugs of rules, names of granted tools."""
    row, events = case.row, Event.objects.filter(run_id=case.row["id"])
    ruled = events.filter(type="gate.decided").order_by("seq").values_list("meta", flat=True)[:MAX_RULES]
    decided = events.filter(type="approval.decided").order_by("seq").values_list("meta", flat=True)[:MAX_RULES]
    return {
        "status": row["status"], "outcome": row["outcome"], "reason": _slug(row["reason"]), "policy": case.policy,
        "gate": [f"{_slug(meta['decision'])}: {_slug(meta['rule'])}" for meta in ruled],
        "people": [_slug(meta["decision"]) for meta in decided], "steps": _steps(case),
    }  # fmt: skip


def _steps(case: _Case) -> list[str]:
    """The tools in the order of their results. A name that nobody granted is a model's own words."""
    seen = Observation.objects.filter(run_id=case.row["id"]).exclude(call_id="").order_by("position")
    steps = [
        source if kind == "result" else f"{source}: {kind}"
        for source, kind in seen.values_list("source", "kind") if source in case.tools
    ]  # fmt: skip
    return steps[:MAX_STEPS]


def _personal(case: _Case) -> Json:
    """What names things of the customer's own, for his own runs; his words may be cut, and then it says so."""
    row, cut = case.row, len(case.goal) > MAX_REQUEST
    orders = RunOrder.objects.filter(run_id=row["id"]).order_by("id").values_list("order_id", flat=True)
    return {
        "run": str(row["id"]), "request_id": row["request_id"], "ended_at": clock.rfc3339(row["completed_at"]),
        "orders": list(orders[:MAX_ORDERS]), "writes": _writes(row["id"]), "request": case.goal[:MAX_REQUEST],
        **({"request_is_cut": True} if cut else {}),
    }  # fmt: skip


def _writes(run_id: UUID) -> list[Json]:
    rows = Write.objects.filter(run_id=run_id).order_by("intent_at")
    names = ("tool", "order_id", "payment_id", "state", "refund_id")
    return [
        {**{name: w[name] for name in names}, "amount": Money(minor=w["amount_minor"], currency=w["currency"]).wire()}
        for w in rows.values(*names, "amount_minor", "currency")[:MAX_WRITES]
    ]


def _slug(value: Any) -> str | None:
    return value if isinstance(value, str) and _SLUG.fullmatch(value) else None
