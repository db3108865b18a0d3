"""An approver's statement (M117): asked for by the profile, frozen into the approval, bound into the decision."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentsite.refusals import Refusal
from approvals import queue
from approvals.admin import screen
from approvals.models import Approval, Decision
from tests import approving
from tests.approving import decide
from tests.world import World

pytestmark = pytest.mark.django_db
STATEMENT = "I compared both captures with the order."
LIST = "/admin/approvals/approval/"


@pytest.fixture
def asked() -> Approval:
    return Approval.objects.get(pk=approving.ask(approving.run(), attestation=STATEMENT))


@pytest.fixture
def lead(db: None) -> User:
    return approving.person()


@pytest.mark.parametrize("said", ["", "on", STATEMENT.upper(), STATEMENT[:-1], STATEMENT + " " + STATEMENT])
def test_an_approve_without_the_statement_is_refused(asked: Approval, lead: User, said: str) -> None:
    with pytest.raises(Refusal) as caught:
        decide(asked, lead, attestation=said)
    assert (caught.value.status, caught.value.slug) == (422, "attestation-required")
    assert STATEMENT in caught.value.detail
    asked.refresh_from_db()
    assert asked.status == "pending"
    row = Decision.objects.get()
    assert (row.counted, row.refusal, row.attested) == (False, "attestation-required", "")


def test_the_statement_is_bound_into_the_decision_and_the_page(asked: Approval, lead: User) -> None:
    with_it = screen.screen_hash(asked)
    decide(asked, lead, attestation=f" {STATEMENT}\r\n")
    assert Decision.objects.get().attested == STATEMENT
    asked.attestation = ""
    assert screen.screen_hash(asked) != with_it


def test_a_rejection_states_nothing(asked: Approval, lead: User) -> None:
    decide(asked, lead, "reject", reason="no", attestation=STATEMENT)
    assert Decision.objects.get().attested == ""


def test_two_people_state_it_each(lead: User) -> None:
    asked = Approval.objects.get(pk=approving.ask(approving.run(), attestation=STATEMENT, required=2))
    decide(asked, lead, attestation=STATEMENT)
    other = approving.person("lead_18")
    with pytest.raises(Refusal):
        decide(asked, other)
    decide(asked, other, attestation=STATEMENT)
    assert list(Decision.objects.filter(counted=True).values_list("attested", flat=True)) == [STATEMENT] * 2


def test_rest_shows_it_and_asks_for_it(asked: Approval, lead: User) -> None:
    client = approving.signed_in(lead)
    path = f"/api/v1/approvals/{asked.pk}"
    text = client.get(path).json()["attestation"]
    assert text == STATEMENT
    body: dict[str, Any] = {"decision": "approve", "action_hash": asked.action_hash}
    refused = client.post(f"{path}/decision", json.dumps(body), content_type="application/json")
    assert (refused.status_code, refused.json()["type"]) == (422, "attestation-required")
    assert [e["pointer"] for e in refused.json()["errors"]] == ["/attestation"]
    done = client.post(f"{path}/decision", json.dumps({**body, "attestation": text}), content_type="application/json")
    assert (done.status_code, done.json()["status"]) == (200, "approved")


def test_the_page_asks_with_a_box_that_only_an_approve_needs(asked: Approval, lead: User) -> None:
    client = approving.signed_in(lead)
    path = f"{LIST}{asked.pk}/change/"
    page = approving.body(client, path)
    assert f'name="attestation" value="{STATEMENT}"' in page
    form = {"decision": "approve", "action_hash": asked.action_hash, "screen_hash": screen.screen_hash(asked)}
    client.post(path, form)
    assert "An approval of this needs your statement." in approving.body(client, path)
    client.post(path, {**form, "attestation": STATEMENT})
    assert f"stated: {STATEMENT}" in approving.body(client, path)
    assert list(Decision.objects.order_by("id").values_list("refusal", flat=True)) == ["attestation-required", ""]


@pytest.mark.django_db(transaction=True)
def test_the_profile_in_force_at_the_asking_names_it(world: World) -> None:
    world.profile(attestation="  I checked\nthe \u200border. ")
    run = world.start()
    asked = world.approval(run)
    assert asked.attestation == "I checked the \\u200border."
    world.profile(attestation="")
    with pytest.raises(Refusal) as caught:
        world.approve(run)
    assert (caught.value.slug, world.posts()) == ("attestation-required", [])
    queue.decide(asked.pk, world.person(), "approve", asked.action_hash, "", attestation=asked.attestation)
    assert (world.resume(run).outcome, len(world.posts())) == ("refunded", 1)
