"""Which model routes may propose writes (`write-path.md` 10): found, and made by hand. Writes only its own rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from agentsite import dbtime, questions
from agentsite.questions import Question, Row
from runs import prompt as prompts
from runs.inference import gateway
from runs.models import Qualification
from tools import registry

MANUAL_DAYS = 30
HOLDS = (
    "FROM (SELECT MAX(id) AS id FROM runs_qualification WHERE agent = %s AND provider = %s AND origin = %s "
    "AND requested_model = %s AND answered_model = %s AND prompt_hash = %s AND tools_hash = %s AND NOT revoked "
    "AND (ends_at IS NULL OR ends_at > {now}) AND kind <> %s) AS q"
)


def find(agent: str, route: str, answered_model: str, *, manual_allowed: bool = True) -> int | None:
    """The id of a qualification that covers this exact route, answer, prompt and write schemas now; else None."""
    return questions.ask(question(agent, route, answered_model, manual_allowed=manual_allowed))


def question(agent: str, route: str, answered_model: str, *, manual_allowed: bool) -> Question[int | None]:
    """What `find` asks, for whoever asks more with it."""
    provider, _, model = route.partition(":")
    of = [agent, provider, gateway.origin(route), model, answered_model, prompts.template_hash(), tools_hash(agent)]
    return Question(
        columns=("q.id",), rest=HOLDS.format(now=dbtime.now_sql()),
        params=[*of, "" if manual_allowed else "manual"], read=_newest,
    )  # fmt: skip


def _newest(rows: Sequence[Row]) -> int | None:
    return None if rows[0][0] is None else int(rows[0][0])


def tools_hash(agent: str) -> str:
    """The hash of an agent's tool list and write schemas."""
    return registry.tools_hash(registry.ROLES.get(agent, ()))


def qualify(
    route: str, *, agent: str, reason: str, by: str, answers_as: str | None = None, days: int | None = MANUAL_DAYS,
    kind: str = "manual",
) -> Qualification:  # fmt: skip
    """Record a qualification of today's prompt and write schemas. `days` None: without end."""
    provider, _, model = route.partition(":")
    now = dbtime.now()
    return Qualification.objects.create(
        agent=agent, provider=provider, origin=gateway.origin(route), requested_model=model,
        answered_model=answers_as or model, prompt_hash=prompts.template_hash(), tools_hash=tools_hash(agent),
        kind=kind, reason=reason, by=by, created_at=now,
        ends_at=now + timedelta(days=days) if days is not None else None,
    )  # fmt: skip


def ensure_offline() -> bool:
    """Qualify the shipped offline model for the shipped prompt once; returns whether a row was made."""
    if find("refunds", "offline:investigator", "investigator") is not None:
        return False
    qualify(
        "offline:investigator", agent="refunds", reason="ships with the product and its test suite", by="bootstrap",
        days=None, kind="evaluated",
    )  # fmt: skip
    return True
