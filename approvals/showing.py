"""How a notice to staff is shown to staff: its state, whom it goes to, what went wrong. Reads one row; writes none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from agentsite.text import visible
from approvals import labels
from approvals.models import Notice
from approvals.telling import LEADS

STATES = {"due": "Being sent", "sent": "Sent", "failed": "Could not be sent", "moot": "Not needed any more"}
TONES = {"due": "wait", "sent": "good", "failed": "bad", "moot": "plain"}
ERRORS = {
    "no_mail_server": "no mail server is configured", "no_connection": "no connection, or it broke off",
    "too_slow": "too slow", "address_missing": "the variable with the chat's address is empty",
    "address_malformed": "no mail address",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Shown:
    """`to` is an address of mail, or for a chat the name of the variable that holds its address."""

    kind: str
    state: str
    tone: str
    to: str
    error: str
    tries: int
    at: datetime
    next_at: datetime | None


def of(row: Notice) -> Shown:
    return Shown(
        kind=kind(row.kind), state=STATES.get(row.state, labels.spoken(row.state)), tone=TONES.get(row.state, "plain"),
        to=f"{visible(row.address)} (chat)" if row.channel == "chat" else visible(row.address),
        error=_error(row.error), tries=row.tries, at=row.ended_at or row.created_at, next_at=row.due_at,
    )  # fmt: skip


def kind(slug: str) -> str:
    return "What waits" if slug == "digest" else LEADS.get(slug, labels.spoken(slug))


def _error(slug: str) -> str:
    """`smtp_451` and `status_500` are the other side's own codes."""
    name, _, code = slug.rpartition("_")
    if code.isdigit():
        return f"the {'mail server' if name == 'smtp' else 'chat'} said {code}"
    return ERRORS.get(slug, labels.spoken(slug)) if slug else ""
