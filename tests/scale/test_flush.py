"""The broker forgets everything while two hundred runs are under way: all finish, and hardly a message is wasted."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress

import pytest

from agentsite.private.processes import wait_until
from runs.chaos import calls
from runs.chaos.people import Staff as Approver
from tests.conftest import MakeSite, Say
from tests.scale import crowd, messages
from tests.system.business import Business
from tests.system.people import Client

pytestmark = [pytest.mark.own_services, pytest.mark.long]
RUNS, WORKERS = 200, 2
MOST_A_PASS = 1.5
BEGUN = 100
"""Passes after which the broker is flushed: some runs have begun, none has ended, most have a message in it."""
STAFF_S, LIMIT_S = 0.3, 240.0


def approve_until(over: threading.Event, url: str) -> None:
    """A member of staff who says yes to whatever waits."""
    staff = Approver(url)
    while not over.wait(STAFF_S):
        with suppress(calls.NoAnswer):
            staff.approve_all()


@pytest.mark.timeout(600)
def test_flushed_broker_costs_no_run_and_few_messages(make_site: MakeSite, business: Business, say: Say) -> None:
    site = make_site("P", workers=WORKERS)
    assert site.broker is not None
    orders = crowd.names("f", RUNS)
    crowd.prepare(site, business, orders)
    messages.count_claims(site.database)
    site.start("web")
    crowd.admit(Client(site), orders)
    over = threading.Event()
    staff = threading.Thread(target=approve_until, args=(over, site.url))
    staff.start()
    try:
        site.start(*site.roles[1:])
        assert wait_until(lambda: messages.passes_of(site.database) >= BEGUN, LIMIT_S), site.tails()
        under_way = RUNS - crowd.count_of(site, "completed")
        lost = messages.flush(site.broker.url)
        took_s = crowd.wait_for(site, RUNS, "completed", limit_s=LIMIT_S)
    finally:
        over.set()
        staff.join()
    traffic = messages.measure(site.broker.url, site.database)
    hinted = int(site.rows("SELECT published FROM runs_sweeper")[0][0])
    say(
        f"FLUSHALL with {under_way} runs under way and {lost} messages in the broker: all {RUNS} done {took_s:.1f} s "
        f"later; {traffic.published} messages for {traffic.passes} passes = {traffic.a_pass:.2f} a pass "
        f"({hinted} by the sweeper, {traffic.restored} restored), {traffic.published / RUNS:.1f} a run"
    )
    assert (under_way, lost > 0) == (RUNS, True)
    refunds = Counter(refund["order_id"] for refund in business.made())
    assert refunds == Counter(dict.fromkeys(orders, 1))
    assert traffic.a_pass <= MOST_A_PASS
