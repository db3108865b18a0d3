"""109 retail support cases, written by nobody here, through REST: the owed refund exactly once, or none at all.

Orders repeat between cases, so cases run in waves in which no order does, each wave on a store and a business system
of its own; nothing of a case is rewritten. The cases are those of tau2-bench and tau-bench (MIT), see
`../shared/cases/README.md`; without them the test is skipped.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Say
from tests.system.business import Business
from tests.system.people import ENDED, Client, Staff
from tests.system.site import TENANT, Ground, Site

CASES = Path(__file__).resolve().parents[3] / "shared/cases/retail/cases.jsonl"
Json = dict[str, Any]
WAVE_S = 300.0
PROFILE = {
    "agent": "refunds", "read_tools": ["get_order", "get_payments", "get_refund_status", "search_policy"],
    "write_tools": {
        "issue_refund": {"by_currency": {"USD": {"max_amount": "10000.00", "requires_approval_above": "100.00"}}}
    },
    "policy_pin": "POL-REF-004@v4",
}  # fmt: skip
pytestmark = [
    pytest.mark.own_services,
    pytest.mark.skipif(not CASES.exists(), reason=f"the retail cases are not there ({CASES})"),
    pytest.mark.timeout(900),
]


def in_waves(cases: list[Json]) -> list[list[Json]]:
    """Cases in order, the n-th about one order in the n-th wave."""
    seen: Counter[str] = Counter()
    waves: list[list[Json]] = []
    for case in cases:
        number = seen[case["order"]["order_id"]]
        seen[case["order"]["order_id"]] += 1
        waves += [[]] if number == len(waves) else []
        waves[number].append(case)
    return waves


def body(case: Json) -> Json:
    return {
        "request_id": case["case"], "goal": case["goal"], "actor": case["actor"],
        "order_ids": [case["order"]["order_id"]],
    }  # fmt: skip


def until_all_end(client: Client, staff: Staff, count: int, pool: ThreadPoolExecutor) -> dict[str, Json]:
    """Approves whatever waits for a person until every run has ended; the runs by request."""
    deadline = time.monotonic() + WAVE_S
    while True:
        list(pool.map(staff.approve, staff.approvals(status="pending")))
        live = [run for run in client.runs() if run["status"] not in ENDED]
        if not live:
            runs = {run["request_id"]: run for run in client.runs()}
            assert len(runs) == count
            return runs
        assert time.monotonic() < deadline, client.told(live[0]["run_id"], f"{len(live)} of {count} runs are stuck")
        time.sleep(0.2)


def fault(case: Json, run: Json, business: Business) -> str | None:
    """What is wrong with the end of a case, or None."""
    order_id, owed = case["order"]["order_id"], case["expected_refund"]
    before = {refund["refund_id"] for refund in case["refunds"]}
    made = [refund for refund in business.made_on(order_id) if refund["refund_id"] not in before]
    shown = [(r["order_id"], r["payment_id"], r["amount"], r["state"]) for r in made]
    posts = sum(1 for post in business.posts() if post["body"]["order_id"] == order_id)
    end = (run["status"], run["outcome"] == "refunded", posts)
    if owed is None:
        told = "has been made and confirmed" not in run["reply"]
        return None if (end, shown, told) == (("completed", False, 0), [], True) else f"{end} {shown} {run['reply']}"
    right = [(order_id, owed["payment_id"], owed["amount"], "succeeded")]
    if (end, shown) != (("completed", True, 1), right):
        return f"{end} {shown}, owed {right}; {run['reason']} {run['reply'] or run['customer_message']}"
    amount = f"{float(owed['amount']['amount']):,.2f}"
    told = made[0]["refund_id"] in run["reply"] and amount in run["reply"] and run["verification"]["passed"]
    return None if told else f"the reply does not tell {made[0]['refund_id']} of {amount}: {run['reply']}"


def play(wave: list[Json], setup: str, ground: Ground, folder: Path) -> dict[str, str]:
    """Runs one wave on a site of its own; what is wrong, by case."""
    with Business(folder / "business.sqlite3") as business, ThreadPoolExecutor(8) as pool:
        for name in ("order", "payments", "refunds"):
            rows = [row for case in wave for row in (case[name] if name != "order" else [case[name]])]
            business.control("/_seed", **{name if name != "order" else "orders": rows})
        site = Site(setup, ground, folder / "site", business.url)
        try:
            site.create_tenant(TENANT, PROFILE)
            site.start()
            client, staff = Client(site), Staff(site)
            list(pool.map(lambda case: client.admit(body(case)), wave))
            runs = until_all_end(client, staff, len(wave), pool)
            found = {case["case"]: fault(case, runs[case["case"]], business) for case in wave}
            return {
                name: client.told(runs[name]["run_id"], words) for name, words in found.items() if words is not None
            }
        finally:
            site.close()


@pytest.mark.parametrize("setup", ["E", pytest.param("P", marks=pytest.mark.long)])
def test_every_retail_case_is_right(setup: str, ground: Ground, tmp_path: Path, say: Say) -> None:
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    assert len(cases) == 109
    began = time.monotonic()
    wrong: dict[str, str] = {}
    for number, wave in enumerate(in_waves(cases)):
        (tmp_path / str(number)).mkdir()
        wrong |= play(wave, setup, ground, tmp_path / str(number))
    say(f"{setup}: {len(cases) - len(wrong)} of {len(cases)} right in {time.monotonic() - began:.0f} s")
    assert wrong == {}
