"""Regression case B62 with workers that really die: set-up P, periods shrunk."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import pytest

from agentsite.private.processes import wait_until
from tests.conftest import MakeSite
from tests.system.business import Business
from tests.system.people import Client, request_8472

pytestmark = pytest.mark.own_services

DELIVERIES, LEASE_S = 2, 2.0


def test_b62_a_run_that_kills_its_worker_is_given_up_by_one_that_lives(make_site: MakeSite, business: Business) -> None:
    business.seed_double_charges("poison", "well")
    business.fault("GET /v1/orders/poison", "delay:300", times=0)  # whoever reads this order dies of it
    site = make_site("P", LEASE_S=str(LEASE_S), MAX_STEP_ATTEMPTS=str(DELIVERIES), CALL_TIMEOUT_S="60").start()
    client = Client(site)
    poisoned, well = client.admit(request_8472("req-poison", order_id="poison")), ""
    for number in range(1, DELIVERIES + 1):
        assert wait_until(lambda n=number: len(business.calls("path=/v1/orders/poison")) == n, 60)  # type: ignore[misc]
        if number == DELIVERIES:
            assert client.wait_for(well, "awaiting_approval")["usage"]["model_calls"] > 0
        site.kill_child("passes")
        well = well or client.admit(request_8472("req-well", order_id="well"))
    ended = client.wait_for(poisoned, "escalated")
    assert (ended["reason"], ended["outcome"], ended["writes"]) == ("worker_crash_loop", "handed_to_staff", [])
    deliveries = [datetime.fromisoformat(call["at"]) for call in business.calls("path=/v1/orders/poison")]
    assert len(deliveries) == DELIVERIES
    gaps = [(after - before).total_seconds() for before, after in pairwise(deliveries)]
    assert min(gaps) > LEASE_S / 2, "no delivery before the dead worker's lease was over"
    assert client.run(well)["status"] == "awaiting_approval"
    assert business.posts() == []
