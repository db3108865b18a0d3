"""The queue's saved views, filters and search: what a person finds there, in which order, and what he never finds."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext

from agentsite import dbtime
from agentsite.money import Money
from approvals import holds, queue
from approvals.admin import lists
from approvals.models import Approval, Decision
from tests import approving
from tests.approving import signed_in
from tests.queues import LIST, decider, orders, shown, tabs, wait

pytestmark = pytest.mark.django_db


@pytest.fixture
def lead() -> User:
    return decider()


def test_working_views_show_the_riskiest_and_of_those_the_oldest_first(lead: User) -> None:
    for order, risk in (("old", 0), ("risky-old", 2), ("raised", 1), ("risky-new", 2), ("new", 0)):
        wait(order, risk=risk)
    client = signed_in(lead)
    for view in ("", "?view=needs_me", "?view=pending"):
        assert orders(client, view) == ["risky-old", "risky-new", "raised", "old", "new"]


def test_expiring_shows_four_hours_by_the_soonest_expiry(lead: User) -> None:
    for order, ttl_s in (("late", 14_000), ("soon", 60), ("middle", 600), ("tomorrow", 86_400), ("over", 5)):
        wait(order, ttl_s=ttl_s)
    approving.shift(Approval.objects.get(order_id="over"), expires_at=-1)
    client = signed_in(lead)
    assert orders(client, "?view=expiring") == ["soon", "middle", "late"]
    assert "over" in orders(client, "?view=pending")
    page = shown(client, "?view=pending")
    assert "time is up" in page and 'data-until class="soon">in 9 min' in page


def test_decided_shows_the_newest_decision_first_and_no_expiry(lead: User) -> None:
    rows = {order: wait(order) for order in ("yes", "no", "expired", "void")}
    queue.void(str(rows["void"].run_id), "message")
    approving.shift(rows["expired"], expires_at=-1)
    assert queue.expire(rows["expired"].pk)
    approving.decide(rows["yes"], lead)
    approving.decide(rows["no"], lead, "reject", reason="Kept the goods")
    for seconds, order in enumerate(("no", "yes")):
        approving.shift(rows[order], decided_at=-seconds)
    client = signed_in(lead)
    assert orders(client, "?view=decided") == ["no", "yes"]
    assert orders(client, "?view=decided&status=approved") == ["yes"]
    assert orders(client, "?status=expired") == ["expired"]
    assert orders(client, "?status=void") == ["void"]
    assert orders(client) == []
    page = shown(client, "?view=everything")
    assert "Expired, undecided" in page and page.count("Rejected</span>") == 1


def test_needs_me_holds_only_what_this_person_may_decide_now() -> None:
    lead, other = approving.person(), decider("lead_18")
    wait("mine", created_by=f"user:{lead.pk}")
    wait("large", large=True)
    claimed, snoozed, decided, open_ = (wait(o, required=2) for o in ("claimed", "snoozed", "decided", "open"))
    holds.claim(claimed.pk, other)
    holds.snooze(snoozed.pk, lead, dbtime.now() + timedelta(hours=1))
    approving.decide(decided, lead)
    assert orders(signed_in(lead)) == ["open"]
    assert sorted(orders(signed_in(lead), "?view=pending")) == sorted(
        ["mine", "large", "claimed", "snoozed", "decided", "open"]
    )
    assert sorted(orders(signed_in(other))) == sorted(["mine", "large", "claimed", "snoozed", "decided", "open"])
    Approval.objects.filter(pk=claimed.pk).update(claimed_until=dbtime.now())
    assert sorted(orders(signed_in(lead))) == ["claimed", "open"]
    assert open_.status == "pending"


def test_auditor_needs_nothing_and_begins_with_all_that_is_pending() -> None:
    wait("open")
    client = signed_in(approving.person("auditor", may=("view_approval",)))
    page = shown(client)
    assert orders(client) == ["open"] and orders(client, "?view=needs_me") == []
    assert "Claim" not in page and "Reject…" not in page and "action-checkbox" not in page


def test_tabs_count_what_waits_and_keep_the_search(lead: User) -> None:
    for number in range(3):
        wait(f"o{number}", ttl_s=600 if number else 86_400)
    assert tabs(shown(signed_in(lead))) == {
        "Needs me": "3", "Expiring": "2", "All pending": "3", "Decided": "", "Everything": "",
    }  # fmt: skip
    assert 'href="?q=o1&view=decided"' in shown(signed_in(lead), "?q=o1")


def test_filters_narrow_by_tenant_reason_currency_and_person() -> None:
    lead = decider(tenants=(approving.TENANT, "t_b"))
    wait("first", rule="sensitive_words_require_approval")
    wait("second", tenant_id="t_b", amount=Money(minor=500_000, currency="JPY"))
    mine = wait("third", rule="customer_day_total_requires_approval")
    holds.claim(mine.pk, lead)
    holds.assign(mine.pk, lead, lead)
    client = signed_in(lead)
    expected = {
        "tenant=t_b": ["second"], "tenant=t_else": [], "why=words": ["first"], "why=threshold": ["second"],
        "why=customer_day": ["third"], "why=tenant_hour": [], "why=nonsense": [], "currency=jpy": ["second"],
        "currency=INR": ["first", "third"], "currency=INRX": [], "mine=claimed": ["third"],
        "mine=assigned": ["third"], "mine=free": ["first", "second"], "mine=snoozed": [], "mine=nonsense": [],
        "why=words&currency=INR&tenant=t_acme_in": ["first"],
    }  # fmt: skip
    assert {query: orders(client, f"?{query}") for query in expected} == expected
    assert "JPY" in shown(client, "?currency=JPY")
    assert shown(client, "?why=words").count("selected>The customer's words</option>") == 1


def test_search_finds_the_equal_first_and_what_begins_so_where_nothing_is(lead: User) -> None:
    rows = {order: wait(order) for order in ("84", "841", "9", "8_1", "8%1")}
    client = signed_in(lead)
    run = str(rows["9"].run_id)
    expected = {
        "84": ["84"], "8": ["841", "84", "8_1", "8%1"], "8_": ["8_1"], "8%": ["8%1"], " 841 ": ["841"],
        "pay-84": ["84"], "pay-8": ["841", "84", "8_1", "8%1"], "cust-841": ["841"], "req-9": ["9"],
        run: ["9"], run.replace("-", "").upper(): ["9"], run[:13]: ["9"], rows["9"].pk: ["9"], "x": [], "' OR 1=1": [],
    }  # fmt: skip
    for text, found in expected.items():
        assert sorted(orders(client, "?" + urlencode({"q": text}))) == sorted(found), text


def test_search_looks_through_everything_and_stays_in_a_view_that_is_named(lead: User) -> None:
    row = wait("8472")
    approving.decide(row, lead)
    client = signed_in(lead)
    assert orders(client, "?q=8472") == ["8472"] and orders(client, "?q=8472&view=needs_me") == []
    assert 'name="view"' not in shown(client, "?view=decided").split("changelist-search")[1].split("</form>")[0]


@pytest.mark.parametrize("query", ["?view=none", "?o=1", "?all=", "?p=2", "?nonsense=1", "?q=%00", "?tenant_id=t_b"])
def test_crafted_parameters_break_nothing_and_widen_nothing(lead: User, query: str) -> None:
    wait("8472")
    wait("theirs", tenant_id="t_b")
    answer = signed_in(lead).get(LIST + query, follow=True)
    assert answer.status_code == 200
    assert "theirs" not in answer.content.decode()


def test_other_tenants_rows_are_in_no_view_filter_search_count_or_choice(lead: User) -> None:
    theirs = wait("theirs", tenant_id="t_b")
    client = signed_in(lead)
    for query in ("", "?view=expiring", "?view=pending", "?view=decided", "?view=everything", "?tenant=t_b",
                  "?q=theirs", f"?q={theirs.pk}", f"?q={theirs.run_id}", "?q=t", "?status=pending"):  # fmt: skip
        assert orders(client, query) == []
        page = shown(client, query)
        assert "t_b" not in page.replace("?tenant=t_b", "").replace("tenant=t_b", "").replace('value="t_b"', "")
    assert tabs(shown(client))["All pending"] == "0"
    assert client.get(f"{LIST}{theirs.pk}/change/").status_code == 404


def test_autocomplete_of_approvals_knows_ones_own_tenants_alone() -> None:
    mine, theirs = wait("8472"), wait("8473", tenant_id="t_b")
    request = RequestFactory().get("/", {"term": "847"})
    request.user = decider()
    queue_admin = admin.site.get_model_admin(Approval)
    rows, _ = queue_admin.get_search_results(request, queue_admin.get_queryset(request), "847")
    assert [row.pk for row in rows] == [mine.pk] and theirs.pk != mine.pk


def test_hostile_ids_are_shown_as_text(lead: User) -> None:
    wait("8472", customer_id="<script>alert(1)</script>\u202e")
    page = signed_in(lead).get(LIST).content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in page and "<script>alert" not in page


def test_list_costs_the_same_number_of_queries_however_long_it_is(lead: User) -> None:
    client = signed_in(lead)
    counts = []
    for number in range(1, 13):
        wait(f"o{number}")
        if number in (2, 12):
            with CaptureQueriesContext(connection) as captured:
                orders(client)
            counts.append(len(captured))
    assert counts[0] == counts[1] <= 20


def test_list_pages_through_a_thousand_and_says_that_there_are_more(
    lead: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_ROWS", 3)
    monkeypatch.setattr(lists, "MAX_COUNTED", 2)
    for number in range(4):
        wait(f"o{number}")
    page = shown(signed_in(lead))
    assert "The first 3 of more approvals" in page
    assert tabs(page)["Needs me"] == "2+"
    assert Decision.objects.count() == 0
