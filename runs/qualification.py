"""Which model routes may propose writes (`write-path.md` 10): found, and made by hand. Writes only its own rows."""

from __future__ import annotations

from datetime import timedelta

from agentsite import dbtime, statements
from runs import prompt as prompts
from runs.inference import gateway
from runs.models import Qualification
from tools import registry

MANUAL_DAYS = 30
HOLDS = (
    "SELECT id FROM runs_qualification WHERE agent = %s AND provider = %s AND origin = %s AND requested_model = %s "
    "AND answered_model = %s AND prompt_hash = %s AND tools_hash = %s AND NOT revoked "
    "AND (ends_at IS NULL OR ends_at > {now}) AND kind <> %s ORDER BY id DESC LIMIT 1"
)


def find(agent: str, route: str, answered_model: str, *, manual_allowed: bool = True) -> int | None:
    """The id of a qualification that covers this exact route, answer, prompt and write schemas now; else None."""
    provider, _, model = route.partition(":")
    of = [agent, provider, gateway.origin(route), model, answered_model, prompts.template_hash(), tools_hash(agent)]
    with statements.cursor() as cursor:
        cursor.execute(HOLDS.format(now=dbtime.now_sql()), [*of, "" if manual_allowed else "manual"])
        row = cursor.fetchone()
    return int(row[0]) if row else None


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
