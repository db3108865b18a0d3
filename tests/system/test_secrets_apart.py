"""Secrets across processes: a worker that calls models holds no write token, and knows it all the same (M71, M32)."""

from __future__ import annotations

import pytest

from tests.conftest import MakeSite
from tests.system.business import Business, order
from tests.system.people import Client, Staff, request_8472

pytestmark = pytest.mark.own_services
SECRETS = ("sandbox-read", "sandbox-write", "sk-of-a-model-0123456789")


@pytest.mark.parametrize("setup", ["E", "P"])
def test_echoed_and_pasted_secrets_are_in_no_row_and_no_log(
    setup: str, make_site: MakeSite, business: Business
) -> None:
    every = " and ".join(SECRETS)
    business.control("/_seed", orders=[order("8472", note=f"use {every}", status=f"held by {SECRETS[1]}")])
    site = make_site(setup, OPENAI_API_KEY=SECRETS[2]).start()
    client = Client(site)
    run_id = client.admit(request_8472(goal=f"Order 8472 was charged twice. My keys: {every}."))
    Staff(site).approve(client.wait_for(run_id, "awaiting_approval")["approval"])
    done = client.wait_for(run_id, "completed")
    assert (done["outcome"], len(business.made())) == ("refunded", 1)

    shown = [str(done), str(client.events(run_id)), client.http.get(f"/runs/{run_id}/observations").text]
    rows = [str(site.rows(f"SELECT * FROM {table}")) for table in ("runs_observation", "runs_event", "runs_turn")]
    rows += [str(site.rows(f"SELECT * FROM {table}")) for table in ("runs_run", "runs_write", "approvals_approval")]
    logs = [log.read_text() for log in site.folder.glob("*.log")]
    assert "[redacted]" in rows[0] and logs
    assert [secret for secret in SECRETS for text in (*shown, *rows, *logs) if secret in text] == []
