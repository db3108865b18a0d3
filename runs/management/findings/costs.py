"""Whether a run's cap on cost can hold: a price for every route, in the currency of every cap. Part of `doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from agentsite import env, prices
from agentsite.tenants.profiles import Profile
from runs.management.findings.finding import Finding, fail, ok, warn


def of_routes() -> Iterator[Finding]:
    """One finding on the routes that somebody must be paid for; none where there is no such route."""
    given = env.read()
    paid = [route for route in given.AGENT_MODELS if not prices.is_free(route)]
    unpriced = [route for route in paid if prices.price_of(given.MODEL_PRICES, route) is None]
    if unpriced:
        yield warn("model prices", f"none for {', '.join(unpriced)} in MODEL_PRICES: max_cost cannot hold there")
    elif paid:
        yield ok("model prices", f"{', '.join(paid)}: known, in {_currency()}")


def of_profile(tenant_id: str, profile: Profile) -> Iterator[Finding]:
    """A finding where the profile's cap on cost cannot be compared with the prices."""
    fault = currency_fault(profile)
    if fault is not None:
        yield fail(f"{tenant_id} max_cost", fault)


def currency_fault(profile: Profile) -> str | None:
    """Why no priced model will be asked for this profile, in one line; None: nothing stands against it."""
    currency, cap = _currency(), profile.limits.max_cost.currency
    if currency is None or currency == cap:
        return None
    return f"limits.max_cost is in {cap}, MODEL_PRICES in {currency}: runs end before the first call that costs money"


def _currency() -> str | None:
    table = env.read().MODEL_PRICES
    return table.currency if table is not None else None
