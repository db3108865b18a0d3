"""What tests of the queue share: many approvals that wait, and what a list shows of them."""

from __future__ import annotations

import html
import re
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from agentsite.money import Money
from approvals.models import Approval
from tests import approving

LIST = "/admin/approvals/approval/"
DECIDES = (*approving.DECIDER, "decide_large_approval")


def wait(order: str, *, tenant_id: str = approving.TENANT, created_by: str = "user:0", **changes: Any) -> Approval:
    """An approval on this order that waits; `ttl_s` is its life, `risk` its place in the queue."""
    risk = changes.pop("risk", None)
    run = approving.run(tenant_id=tenant_id, request_id=f"req-{order}", created_by=created_by)
    amount = changes.pop("amount", Money(minor=200_000, currency="INR"))
    columns = {"order_id": order, "payment_id": f"pay-{order}", "customer_id": f"cust-{order}", "amount": amount}
    made = Approval.objects.filter(pk=approving.ask(run, **{**columns, **changes}))
    if risk is not None:
        made.update(risk=risk)
    return made.get()


def shown(client: Client, parameters: str = "") -> str:
    answer = client.get(LIST + parameters)
    assert answer.status_code == 200, parameters
    return html.unescape(answer.content.decode())


def orders(client: Client, parameters: str = "") -> list[str]:
    """The orders of a list, in its order."""
    return re.findall(r'class="field-order"><a[^>]*>([^<]+)</a>', shown(client, parameters))


def tabs(page: str) -> dict[str, str]:
    """Titles of the saved views to their counts."""
    nav = page.split('<nav class="tabs"')[1].split("</nav>")[0]
    found = re.findall(r">([A-Za-z ]+?)(?: <span class=\"count\">([^<]+))?<", nav)
    return {name.strip(): count for name, count in found if name.strip()}


def hold(client: Client, approval: Approval, what: str, **form: str) -> Any:
    return client.post(f"{LIST}{approval.pk}/hold/", {"hold": what, **form}, follow=True)


def chosen(approvals: list[Approval], **form: str) -> dict[str, Any]:
    """The form of the page in between, as it was shown for these rows."""
    hashes = {f"hash:{row.pk}": row.action_hash for row in approvals}
    return {"chosen": [row.pk for row in approvals], **hashes, **form}


def decider(name: str = "lead_17", **more: Any) -> User:
    return approving.person(name, may=DECIDES, **more)
