"""Many customers and one member of staff at a private site: admitted, parked, listed, approved. Imports no Django."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.system.business import Business, captures, order
from tests.system.people import Client, Staff, request_8472
from tests.system.site import TENANT, Site

Json = dict[str, Any]
CUSTOMERS = 8
LOOK_S = 0.2
PROFILE: Json = {
    "agent": "refunds", "read_tools": ["get_order", "get_payments", "get_refund_status", "search_policy"],
    "write_tools": {"issue_refund": {"by_currency": {"INR": {"max_amount": "5000.00",
                                                             "requires_approval_above": "1000.00"}}}},
    "policy_pin": "POL-REF-004@v4",
}  # fmt: skip
"""The shipped one without totals: a hundred refunds in one hour are no question here."""


def prepare(site: Site, business: Business, orders: Collection[str]) -> None:
    """The tenant's profile, and orders that were charged twice, each of a customer of its own."""
    site.create_tenant(TENANT, PROFILE)
    known = [order(o, customer_id=f"cust_{o}") for o in orders]
    payments = [capture for o in orders for capture in captures(o, f"pay_{o}a", f"pay_{o}b")]
    business.control("/_seed", orders=known, payments=payments)


def admit(client: Client, orders: Collection[str]) -> dict[str, str]:
    """A run an order, several customers at once; run ids by order."""

    def one(order_id: str) -> str:
        body = request_8472(f"req-{order_id}", order_id=order_id)
        return client.admit({**body, "actor": {**body["actor"], "customer_id": f"cust_{order_id}"}})

    with ThreadPoolExecutor(CUSTOMERS) as customers:
        return dict(zip(orders, customers.map(one, orders), strict=True))


def count_of(site: Site, *statuses: str) -> int:
    """Runs in these statuses; of all of them where none is named."""
    where = " WHERE status IN ({})".format(", ".join(f"'{s}'" for s in statuses)) if statuses else ""
    return int(site.rows(f"SELECT count(*) FROM runs_run{where}")[0][0])


def wait_for(site: Site, wanted: int, *statuses: str, limit_s: float) -> float:
    """Seconds until so many runs are in these statuses. The limit only tells a stuck site from a slow machine."""
    started = time.monotonic()
    while count_of(site, *statuses) < wanted:
        told = site.rows("SELECT status, reason, count(*) FROM runs_run GROUP BY status, reason")
        assert time.monotonic() - started < limit_s, f"waited for {wanted} {statuses}: {told}\n{site.tails()}"
        time.sleep(LOOK_S)
    return time.monotonic() - started


def waiting(staff: Staff) -> list[Json]:
    """Every approval that waits, through every page of the API."""
    page = staff.http.get("/api/v1/approvals", params={"limit": "100", "status": "pending"})
    found: list[Json] = []
    while True:
        assert page.status_code == 200, page.text
        found += page.json()["results"]
        if page.json()["next"] is None:
            return found
        page = staff.http.get(page.json()["next"])


def approve_at_once(staff: Staff, approvals: Collection[Json]) -> list[httpx.Response]:
    """One decision each, all on their way together."""
    with ThreadPoolExecutor(len(approvals)) as clicks:
        return list(clicks.map(staff.decide, approvals))


def names(prefix: str, count: int) -> list[str]:
    """Order ids that read and sort well."""
    return [f"{prefix}{number:05}" for number in range(count)]
