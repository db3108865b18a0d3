"""Changed since the proposal: the live facts read again by button and at the click, shown old to new, and bound in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from agentsite import env
from approvals.models import Approval, Decision
from tests import approving
from tests.approving import inr
from tests.system.business import Business, captures
from tests.world import World

LIST = "/admin/approvals/approval/"


def page_of(approval: Approval) -> str:
    return f"{LIST}{approval.pk}/change/"


class Desk:
    """A browser on an approval's review page; `form` is the page as it was when it was opened."""

    def __init__(self, approval: Approval, client: Client) -> None:
        self.client, self.approval = client, approval
        self.form = self.open()

    def open(self) -> dict[str, str]:
        return dict(re.findall(r'name="(action_hash|screen_hash)" value="([^"]+)"', self.page()))

    def page(self) -> str:
        return approving.body(self.client, page_of(self.approval))

    def click(self, decision: str = "approve", **form: str) -> str:
        """Sends the page as it was opened; what the page then shows."""
        answer = self.client.post(page_of(self.approval), {"decision": decision, **self.form, **form})
        assert answer.status_code == 302
        return self.page()

    def read_again(self) -> str:
        answer = self.client.post(f"{LIST}{self.approval.pk}/reread/")
        assert (answer.status_code, answer.headers["Location"]) == (302, page_of(self.approval))
        return self.page()


@pytest.fixture
def shop(business_system: Business, monkeypatch: pytest.MonkeyPatch) -> Iterator[Business]:
    """The business system with order 8472 as the stored facts of an approval have it."""
    business_system.seed_double_charge()
    monkeypatch.setenv("COMMERCE_URL", business_system.url)
    monkeypatch.setenv("CALL_TIMEOUT_S", "2")
    env.read.cache_clear()
    yield business_system
    assert business_system.posts() == []
    env.read.cache_clear()


@pytest.fixture
def desk(db: None, shop: Business) -> Desk:
    return Desk(Approval.objects.get(pk=approving.ask(approving.run())), approving.signed_in(approving.person()))


def moved(shop: Business, **order: Any) -> None:
    shop.control("/_seed", orders=[{"order_id": "8472", **order}])


def refusals() -> list[str]:
    return list(Decision.objects.filter(counted=False).order_by("id").values_list("refusal", flat=True))


def reads(shop: Business) -> int:
    return len(shop.calls("method=GET&path=/v1"))


def stored(desk: Desk) -> Approval:
    return Approval.objects.get(pk=desk.approval.pk)


def test_an_approve_reads_the_facts_again_and_counts_where_nothing_moved(desk: Desk, shop: Business) -> None:
    before = reads(shop)
    assert "Not read again since the proposal." in desk.page()
    page = desk.click()
    assert reads(shop) == before + 3
    assert "Saved: lead_17 approved this at" in page
    assert "nothing that matters changed" in page
    assert stored(desk).reread == {"read_at": stored(desk).reread["read_at"], "changes": [], "error": ""}
    assert Decision.objects.get().screen_hash == desk.form["screen_hash"]


def test_a_yes_on_facts_that_moved_is_refused_and_shows_old_and_new(desk: Desk, shop: Business) -> None:
    moved(shop, amount_due=inr("2500.00"), status="partly returned")
    page = desk.click()
    assert "The facts changed since this was proposed." in page
    for old, new in (("2,000.00 INR", "2,500.00 INR"), ("delivered", "partly returned")):
        assert re.search(rf"<td>order \w+</td><td>{old}</td><td><b>{new}</b></td>", page), (old, new)
    assert (refusals(), stored(desk).status) == (["facts-changed"], "pending")
    assert Decision.objects.get().screen_hash == desk.form["screen_hash"]
    assert "The page changed while you looked." in desk.click()
    assert refusals() == ["facts-changed", "screen-changed"]


def test_the_same_person_decides_anew_on_the_page_that_shows_the_change(desk: Desk, shop: Business) -> None:
    moved(shop, status="returned")
    desk.click()
    first, desk.form = desk.form, desk.open()
    assert first["screen_hash"] != desk.form["screen_hash"]
    assert first["action_hash"] == desk.form["action_hash"]
    assert "Saved: lead_17 approved this at" in desk.click()
    assert Decision.objects.get(counted=True).screen_hash == desk.form["screen_hash"]


def test_a_refund_made_beside_us_is_a_change(desk: Desk, shop: Business) -> None:
    theirs = {"refund_id": "rf_theirs", "payment_id": "pay_9001", "order_id": "8472", "amount": inr("500.00"),
              "state": "succeeded"}  # fmt: skip
    shop.control("/_seed", refunds=[theirs])
    assert "refund rf_theirs state: not there → succeeded" in desk.click()
    assert stored(desk).reread["changes"] == [
        {"what": "refund rf_theirs amount", "old": "not there", "new": "500.00 INR"},
        {"what": "refund rf_theirs state", "old": "not there", "new": "succeeded"},
    ]
    assert refusals() == ["facts-changed"]


def test_a_note_is_no_fact(desk: Desk, shop: Business) -> None:
    moved(shop, note="please approve at once")
    assert "Saved: lead_17 approved this at" in desk.click()


def test_the_button_reads_again_and_makes_older_pages_stale(desk: Desk, shop: Business) -> None:
    assert "Read again: nothing that matters changed since the proposal." in desk.read_again()
    assert desk.open() == desk.form, "a reading that found nothing leaves every open page good"
    other = Desk(desk.approval, approving.signed_in(approving.person("lead_18")))
    shop.control("/_seed", payments=captures("8472", "pay_9003"))
    page = desk.read_again()
    assert "payment pay_9003 state: not there → captured" in page
    assert 'id="changed"' in page
    assert "The page changed while you looked." in other.click()
    assert (refusals(), stored(desk).status) == (["screen-changed"], "pending")
    assert "Saved: lead_18 rejected this at" in other.click("reject", reason="not now"), "a no needs no fresh page"


def test_facts_that_moved_back_are_news_too(desk: Desk, shop: Business) -> None:
    moved(shop, status="returned")
    desk.read_again()
    desk.form = desk.open()
    moved(shop, status="delivered")
    page = desk.click()
    assert "The facts changed since this was proposed. order status: returned → delivered." in page
    assert 'id="changed"' not in page
    desk.form = desk.open()
    assert "Saved: lead_17 approved this at" in desk.click()


@pytest.mark.parametrize("mode", ["status:503", "delay:6", "garbage"])
def test_a_business_system_that_cannot_be_read_stops_no_decision(desk: Desk, shop: Business, mode: str) -> None:
    moved(shop, status="returned")
    desk.read_again()
    desk.form = desk.open()
    shop.fault("GET /v1/orders/8472", mode)
    page = desk.click()
    assert "Saved: lead_17 approved this at" in page
    assert "The business system could not be read just now" in page
    assert [c["what"] for c in stored(desk).reread["changes"]] == ["order status"], "what was known stays known"
    assert stored(desk).status == "approved"


def test_an_order_that_is_gone_is_a_change(desk: Desk, shop: Business) -> None:
    shop.control("/_seed", reset=True)
    page = desk.click()
    assert "order: 8472 → not there" in page
    assert refusals() == ["facts-changed"]


def test_a_get_reads_nothing(desk: Desk, shop: Business) -> None:
    before = reads(shop)
    assert desk.client.get(f"{LIST}{desk.approval.pk}/reread/").status_code == 405
    assert desk.client.get(page_of(desk.approval), {"decision": "approve", **desk.form}).status_code == 200
    assert (reads(shop), stored(desk).reread) == (before, None)


def test_only_who_may_decide_reads_again(desk: Desk, shop: Business) -> None:
    before = reads(shop)
    viewer = approving.signed_in(approving.person("viewer", may=("view_approval",)))
    stranger = approving.signed_in(approving.person("stranger", tenants=("t_other",)))
    assert viewer.post(f"{LIST}{desk.approval.pk}/reread/").status_code == 403
    assert stranger.post(f"{LIST}{desk.approval.pk}/reread/").status_code == 404
    assert "Read again now" not in approving.body(viewer, page_of(desk.approval))
    assert reads(shop) == before


@pytest.mark.parametrize("form", [{"decision": "reject", "reason": "no"}, {"decision": "approve", "action_hash": "x"},
                                  {"decision": "approve", "screen_hash": ""}, {"decision": "maybe"}])  # fmt: skip
def test_nothing_is_read_for_what_would_not_be_taken(desk: Desk, shop: Business, form: dict[str, str]) -> None:
    before = reads(shop)
    desk.click(**form)
    assert reads(shop) == before
    assert not Decision.objects.filter(counted=True, decision="approve").exists()


# --- and at the release everything is checked once more -----------------------------------------------------


@pytest.mark.parametrize("door", ["page", "rest"])
def test_a_yes_given_in_spite_of_a_change_is_still_checked_by_the_gate(world: World, door: str) -> None:
    run = world.start()
    desk = Desk(world.approval(run), world.browser())
    world.seed(amount_due=inr("3500.00"))
    before = reads(world.sandbox)
    if door == "page":
        desk.click()
        desk.form = desk.open()
        desk.click()
    else:
        body = {"decision": "approve", "action_hash": desk.approval.action_hash}
        path = f"/api/v1/approvals/{desk.approval.pk}/decision"
        assert desk.client.post(path, json.dumps(body), content_type="application/json").status_code == 200
        assert reads(world.sandbox) == before, "REST reads nothing: the release does"
    assert stored(desk).status == "approved"
    world.resume(run)
    assert (world.rules(run)[-1], world.posts()) == ("amount_exceeds_refundable", [])
