"""Claims, snoozes and assignments: soft, for a time, and never in the way of a decision by somebody who may."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentsite import dbtime
from agentsite.refusals import Refusal
from approvals import holds, queue
from approvals.admin import holding
from approvals.models import Approval, Snooze
from tests import approving
from tests.approving import signed_in
from tests.queues import LIST, decider, hold, orders, shown, wait

pytestmark = pytest.mark.django_db


@pytest.fixture
def asked() -> Approval:
    return wait("8472")


@pytest.fixture
def lead() -> User:
    return decider()


@pytest.fixture
def other() -> User:
    return decider("lead_18")


def state(approval: Approval) -> tuple[str | None, bool]:
    """(who claims it, whether that still holds)."""
    row = Approval.objects.select_related("claimed_by").get(pk=approval.pk)
    live = row.claimed_until is not None and row.claimed_until > dbtime.now()
    return (row.claimed_by.get_username() if row.claimed_by else None, live)


def said(refused: pytest.ExceptionInfo[Refusal]) -> tuple[int, str]:
    return (refused.value.status, refused.value.slug)


def test_claim_is_seen_by_others_in_list_and_on_the_page_until_it_ends(
    asked: Approval, lead: User, other: User
) -> None:
    until = holds.claim(asked.pk, lead)
    assert abs((until - dbtime.now()).total_seconds() - 900) < 30
    theirs = signed_in(other)
    assert orders(theirs) == [] and orders(theirs, "?view=pending") == ["8472"]
    assert f'lead_17, <time datetime="{until.isoformat()}"' in shown(theirs, "?view=pending")
    page = approving.body(theirs, f"{LIST}{asked.pk}/change/")
    assert "lead_17 is looking at this" in page and "You may decide" in page
    approving.shift(asked, claimed_until=-1)
    assert orders(theirs) == ["8472"] and "lead_17" not in shown(theirs)


def test_claim_never_stops_the_decision_of_another(asked: Approval, lead: User, other: User) -> None:
    holds.claim(asked.pk, lead)
    assert approving.decide(asked, other).status == "approved"
    assert state(asked)[0] == "lead_17"
    assert orders(signed_in(lead), "?view=decided") == ["8472"]


def test_first_claim_wins_and_its_owner_makes_it_longer(asked: Approval, lead: User, other: User) -> None:
    holds.claim(asked.pk, lead)
    with pytest.raises(Refusal) as refused:
        holds.claim(asked.pk, other)
    assert said(refused) == (409, "claimed") and "lead_17 is looking at it" in refused.value.detail
    assert not holds.release(asked.pk, other) and state(asked) == ("lead_17", True)
    approving.shift(asked, claimed_until=10)
    holds.claim(asked.pk, lead)
    assert Approval.objects.get(pk=asked.pk).claimed_until > dbtime.now() + timedelta(minutes=14)  # type: ignore[operator]
    assert holds.release(asked.pk, lead) and state(asked) == (None, False)
    holds.claim(asked.pk, other)
    assert state(asked) == ("lead_18", True)


def test_who_may_not_decide_claims_nothing(asked: Approval) -> None:
    own = decider("own")
    Approval.objects.filter(pk=asked.pk).update(created_by=f"user:{own.pk}", large=True)
    junior, stranger = approving.person("junior"), decider("stranger", tenants=("t_b",))
    for user, expected in ((own, (403, "own-run")), (junior, (403, "not-permitted")), (stranger, (404, "not-found"))):
        for act in (holds.claim,):
            with pytest.raises(Refusal) as refused:
                act(asked.pk, user)
            assert said(refused) == expected
    assert state(asked) == (None, False)


def test_holds_end_with_the_question(asked: Approval, lead: User) -> None:
    approving.decide(asked, lead)
    until = dbtime.now() + timedelta(hours=1)
    for act in (lambda: holds.claim(asked.pk, lead), lambda: holds.snooze(asked.pk, lead, until),
                lambda: holds.assign(asked.pk, lead, lead)):  # fmt: skip
        with pytest.raises(Refusal) as refused:
            act()
        assert said(refused) == (409, "not-pending")
    assert not Snooze.objects.exists()


def test_snooze_is_one_persons_own_and_ends_by_itself(asked: Approval, lead: User, other: User) -> None:
    holds.claim(asked.pk, lead)
    holds.snooze(asked.pk, lead, dbtime.now() + timedelta(hours=1))
    holds.snooze(asked.pk, lead, dbtime.now() + timedelta(hours=4))
    assert state(asked) == (None, False) and Snooze.objects.count() == 1
    mine = signed_in(lead)
    assert orders(mine) == [] and orders(signed_in(other)) == ["8472"]
    assert "1 put off by you" in shown(mine) and orders(mine, "?view=pending&mine=snoozed") == ["8472"]
    Snooze.objects.update(until=dbtime.now())
    assert orders(mine) == ["8472"]
    approving.decide(asked, lead)
    assert orders(mine, "?view=decided") == ["8472"]


def test_nothing_is_put_off_longer_than_to_the_next_day(asked: Approval, lead: User) -> None:
    for hours in (0, -1, 37):
        with pytest.raises(Refusal) as refused:
            holds.snooze(asked.pk, lead, dbtime.now() + timedelta(hours=hours))
        assert said(refused) == (400, "too-long")
    assert not Snooze.objects.exists()


@pytest.mark.parametrize("hour", [0, 6, 7, 23])
def test_tomorrow_begins_at_seven(hour: int) -> None:
    now = datetime(2026, 11, 30, hour, 30, tzinfo=UTC)
    ends = holding.ends(now)
    assert ends["tomorrow"] == datetime(2026, 12, 1, 7, tzinfo=UTC)
    assert (ends["1h"] - now, ends["4h"] - now) == (timedelta(hours=1), timedelta(hours=4))
    assert all(until <= now + holds.MAX_SNOOZE for until in ends.values())


@pytest.mark.parametrize("what", ["1h", "4h", "tomorrow"])
def test_buttons_of_a_hold_lead_back_to_the_list_as_it_was(asked: Approval, lead: User, what: str) -> None:
    client = signed_in(lead)
    for act in ("claim", "release", what, "wake"):
        answer = hold(client, asked, act, back="?view=pending&q=8472")
        assert answer.redirect_chain == [(f"{LIST}?view=pending&q=8472", 302)]
    assert hold(client, asked, what, back="//evil.example/?x=1").redirect_chain[0][0].startswith(f"{LIST}?")
    assert hold(client, asked, "claim").redirect_chain == [(f"{LIST}{asked.pk}/change/", 302)]
    assert "It expires before that" not in hold(client, asked, "1h", back="").content.decode()
    approving.shift(asked, expires_at=600)
    assert "It expires before that" in hold(client, asked, "1h", back="").content.decode()


def test_hold_is_a_post_with_a_token_by_who_may_decide(asked: Approval, lead: User) -> None:
    path = f"{LIST}{asked.pk}/hold/"
    client = signed_in(lead)
    assert client.get(path, {"hold": "claim"}).status_code == 405
    assert client.post(path, {"hold": "nonsense"}).status_code == 404
    assert client.post(path).status_code == 404
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(lead)
    assert strict.post(path, {"hold": "claim"}).status_code == 403
    assert (
        signed_in(approving.person("viewer", may=("view_approval",))).post(path, {"hold": "claim"}).status_code == 403
    )
    assert signed_in(decider("stranger", tenants=("t_b",))).post(path, {"hold": "claim"}).status_code == 404
    assert Client().post(path, {"hold": "claim"}).status_code == 302
    assert state(asked) == (None, False) and not Snooze.objects.exists()


def test_assignment_goes_to_who_may_see_and_decide_it_alone(asked: Approval, lead: User) -> None:
    Approval.objects.filter(pk=asked.pk).update(large=True)
    fit, root = decider("fit"), approving.person("root", tenants=(), may=(), is_superuser=True)
    unfit = [
        approving.person("junior"), decider("stranger", tenants=("t_b",)), decider("gone", is_active=False),
        approving.person("viewer", may=("view_approval",)),
    ]  # fmt: skip
    assert [person.get_username() for person in holds.deciders([asked], 10)] == ["fit", "junior", "lead_17", "root"]
    asked.refresh_from_db()
    assert [person.get_username() for person in holds.deciders([asked], 10)] == ["fit", "lead_17", "root"]
    for person in unfit:
        with pytest.raises(Refusal) as refused:
            holds.assign(asked.pk, lead, person)
        assert said(refused) == (403, "not-permitted")
    for someone in (fit, root, None):
        holds.assign(asked.pk, lead, someone)
        assert Approval.objects.get(pk=asked.pk).assigned_to_id == (someone.pk if someone else None)
    with pytest.raises(Refusal) as refused:
        holds.assign(asked.pk, unfit[1], fit)
    assert said(refused) == (404, "not-found")


def test_holds_touch_nothing_of_the_question(asked: Approval, lead: User) -> None:
    before = Approval.objects.filter(pk=asked.pk).values("status", "action_hash", "expires_at", "reason", "decided_by")
    first = before.get()
    holds.claim(asked.pk, lead)
    holds.assign(asked.pk, lead, lead)
    holds.snooze(asked.pk, lead, dbtime.now() + timedelta(hours=1))
    assert before.get() == first and not asked.decisions.exists()
    assert queue.remaining(Approval.objects.get(pk=asked.pk)) == 1
