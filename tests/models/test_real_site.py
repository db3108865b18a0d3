"""A site of real processes on models behind HTTP: the first provider dies between two steps, the second goes on."""

from __future__ import annotations

import pytest

from tests.conftest import MakeSite
from tests.models.server import Fault, ModelServer
from tests.models.speaking import ANTHROPIC, OPENAI
from tests.system.business import KEY, Business
from tests.system.people import Client, Staff, request_8472

pytestmark = [pytest.mark.own_services, pytest.mark.long]

ROUTES = ("openai:m-2026", "anthropic:m-2026")
GONE = Fault(cut=0, whole=True)


@pytest.mark.parametrize("setup", ["P"])
def test_run_goes_on_with_the_second_provider(setup: str, make_site: MakeSite, business: Business) -> None:
    with ModelServer(OPENAI, always=GONE) as dying, ModelServer(ANTHROPIC) as living:
        dying.faults = [Fault(), Fault()]
        known = {**dying.variables(), **living.variables()}
        site = make_site(setup, AGENT_MODELS=",".join(ROUTES), **known)
        for route in ROUTES:
            site.manage("qualify", route, "--reason", "a test")
        site.start()
        client = Client(site)
        run_id = client.admit(request_8472())
        waiting = client.wait_for(run_id, "awaiting_approval")
        assert business.posts() == []
        Staff(site).approve(waiting["approval"])
        done = client.wait_for(run_id, "completed")
    assert [p["idempotency_key"] for p in business.posts()] == [KEY]
    assert (done["outcome"], done["usage"]["model_calls"], done["versions"]["model"]) == ("refunded", 4, "m-2026")
    called = [e["data"]["route"] for e in client.events(run_id) if e["type"] == "model.replied"]
    assert called == [ROUTES[0], ROUTES[0], ROUTES[1], ROUTES[1]]
    assert (len(dying.requests), len(living.requests)) == (4, 2)
    assert (dying.wrong, living.wrong) == ([], [])
