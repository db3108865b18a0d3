"""Four tenants, one per kind of provider: what it does, what the site is told of it, and what may come of a kill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
BLIND = {"check_remaining": False, "supports_expected_refunded": False}
"""A second POST is a second refund: the provider itself stops nothing."""

RULE = {"max_amount": "5000.00", "requires_approval_above": "1000.00"}


@dataclass(frozen=True, kw_only=True)
class Provider:
    """`away`: from the kill on its look-ups fail, until the run has ended or given up waiting."""

    name: str
    behaviour: Json
    promises: Json
    away: bool = False

    @property
    def tenant(self) -> str:
        return f"t_{self.name}"

    def profile(self, url: str, *, approval_ttl_s: int = 86_400) -> Json:
        return {
            "agent": "refunds", "read_tools": ["get_order", "get_payments", "get_refund_status", "search_policy"],
            "write_tools": {"issue_refund": {"by_currency": {"INR": RULE}}},
            "policy_pin": "POL-REF-004@v4", "approval_ttl_s": approval_ttl_s,
            "commerce": {"url": url, "read_token_env": "SEAM_READ", "write_token_env": "SEAM_WRITE", **self.promises},
        }  # fmt: skip


HONOURS = Provider(
    name="honours", behaviour={**BLIND, "honours_keys": True},
    promises={"honours_keys": True, "key_life_s": 86_400, "settle_s": 2},
)  # fmt: skip
IGNORES = Provider(
    name="ignores", behaviour={**BLIND, "honours_keys": False, "lists_keys": False, "lag_s": 1.5},
    promises={"honours_keys": False, "settle_s": 2},
)  # fmt: skip
FORGETS = Provider(
    name="forgets", behaviour={**BLIND, "honours_keys": True, "key_life_s": 0.5},
    promises={"honours_keys": True, "key_life_s": 0.5, "settle_s": 2},
)  # fmt: skip
AWAY = Provider(
    name="away", behaviour={**BLIND, "honours_keys": False, "lists_keys": False},
    promises={"honours_keys": False, "settle_s": 2}, away=True,
)  # fmt: skip
PROVIDERS = (HONOURS, IGNORES, FORGETS, AWAY)
