"""The circuit breaker: when it opens and closes, in time of the database; what it keeps back, and who sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentsite import clock, metrics
from runs.management.findings import fleet
from tests.breakers import ACCOUNT, COOL_S, DEPENDENCY, N, allowed, fail, kept_back, shortened, state, time_goes_by
from tests.world import World
from tools import breaker
from tools.adapters.http import Reply
from tools.models import Breaker


@pytest.fixture
def periods() -> Iterator[pytest.MonkeyPatch]:
    with shortened() as patch:
        yield patch


# --- the row -------------------------------------------------------------------------------------------------


def test_success_of_a_closed_breaker_writes_nothing_and_asks_once_in_a_while(
    db: None, periods: pytest.MonkeyPatch
) -> None:
    account = "t_acme_in@https://quiet.example"
    with CaptureQueriesContext(connection) as asked:
        for _ in range(20):
            breaker.succeeded(allowed(account))
    assert len(asked) == 1 and asked[0]["sql"].startswith("SELECT")
    assert not Breaker.objects.exists()


def test_opens_after_so_many_failures_in_a_row(db: None, periods: pytest.MonkeyPatch) -> None:
    fail(N - 1)
    assert state() == ("closed", N - 1)
    breaker.succeeded(allowed())
    assert state() == ("closed", 0), "an answer between them begins the count anew"
    fail(N - 1)
    assert not allowed().probe
    fail(1)
    assert state() == ("open", N)
    assert COOL_S - 1 < kept_back() <= COOL_S
    assert not breaker.is_closed(DEPENDENCY, ACCOUNT)


def test_half_open_lets_one_probe_through_and_its_answer_closes(db: None, periods: pytest.MonkeyPatch) -> None:
    fail()
    time_goes_by(COOL_S)
    assert state() == ("half_open", N)
    probe = allowed()
    assert probe.probe
    assert [kept_back() for _ in range(7)] == [breaker.PROBED_S] * 7
    breaker.succeeded(probe)
    assert state() == ("closed", 0)
    assert not allowed().probe and breaker.is_closed(DEPENDENCY, ACCOUNT)


def test_failed_probe_opens_for_longer_each_time_up_to_the_cap(db: None, periods: pytest.MonkeyPatch) -> None:
    fail()
    waits = [round(kept_back())]
    for _ in range(5):
        time_goes_by(waits[-1])
        breaker.failed(allowed())
        waits.append(round(kept_back()))
    assert waits == [5, 10, 20, 40, 60, 60]


def test_lease_of_a_lost_probe_ends_and_its_late_report_changes_nothing(db: None, periods: pytest.MonkeyPatch) -> None:
    fail()
    time_goes_by(COOL_S)
    lost = allowed(lease_s=0.2)
    assert 0 < kept_back() <= breaker.PROBED_S
    time.sleep(0.25)
    second = allowed()
    assert second.probe and second.token != lost.token
    breaker.failed(lost, 600)
    breaker.succeeded(lost)
    breaker.unused(lost)
    assert Breaker.objects.get().probe_token == second.token
    breaker.succeeded(second)
    assert state() == ("closed", 0)


def test_probe_that_called_nobody_is_given_back(db: None, periods: pytest.MonkeyPatch) -> None:
    fail()
    time_goes_by(COOL_S)
    breaker.unused(allowed())
    assert state() == ("half_open", N) and allowed().probe


def test_failures_reported_late_by_calls_that_were_under_way_change_nothing(
    db: None, periods: pytest.MonkeyPatch
) -> None:
    under_way = [allowed() for _ in range(9)]
    fail()
    until = Breaker.objects.get().open_until
    for permit in under_way:
        breaker.failed(permit)
        breaker.succeeded(permit)
    assert state() == ("open", N) and Breaker.objects.get().open_until == until


def test_an_answer_that_names_a_time_opens_at_once_for_that_time(db: None, periods: pytest.MonkeyPatch) -> None:
    fail(1, retry_after_s=7)
    assert 6 < kept_back() <= 7
    fail(1, account="t_acme_in@https://other.example", retry_after_s=0)
    assert COOL_S - 1 < kept_back("t_acme_in@https://other.example") <= COOL_S, "never shorter than the cooling time"
    late = breaker.Permit(dependency=DEPENDENCY, account=ACCOUNT)
    breaker.failed(late, 30)
    assert 29 < kept_back() <= 30
    breaker.failed(late, 8)
    assert 28 < kept_back() <= 30, "the longer time stands"


def test_a_look_up_waits_for_the_cooling_time_and_no_longer(db: None, periods: pytest.MonkeyPatch) -> None:
    fail(1, retry_after_s=600)
    assert COOL_S - 1 < kept_back(look_up=True) <= COOL_S
    time_goes_by(COOL_S)
    look_up = allowed(look_up=True)
    assert look_up.probe and kept_back() > 500
    breaker.succeeded(look_up)
    assert 500 < kept_back() < 600, "an answered look-up is no leave for anybody else"
    assert COOL_S - 1 < kept_back(look_up=True) <= COOL_S, "and the next look-up comes a cooling time later"
    assert not breaker.is_closed(DEPENDENCY, ACCOUNT)
    time_goes_by(600)
    breaker.succeeded(allowed())
    assert state() == ("closed", 0)


def test_tenants_and_origins_are_apart(db: None, periods: pytest.MonkeyPatch) -> None:
    mine = breaker.account_of("t_acme_in", "https://reader:hunter2@Shop.example/api/v2?x=1")
    assert mine == ACCOUNT
    fail(account=mine)
    kept_back(mine)
    for tenant_id, url in (("t_other", "https://shop.example"), ("t_acme_in", "https://shop.example:8443")):
        assert not allowed(breaker.account_of(tenant_id, url)).probe
    other = breaker.allow("model", mine)
    assert isinstance(other, breaker.Permit)


@pytest.mark.parametrize("url", ["http://[", "https://", "nonsense", "http://host:port", "https://a" * 200])
def test_account_of_a_broken_address_is_still_one(url: str) -> None:
    account = breaker.account_of("t_acme_in", url)
    assert account.startswith("t_acme_in@") and len(account) <= 400


def test_breaker_that_cannot_be_reached_lets_calls_through(db: None, periods: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Any:
        raise OperationalError("no route to host")

    fail()
    time_goes_by(COOL_S)
    probe = allowed()
    periods.setattr(breaker, "_rows", away)
    periods.setattr(breaker, "_row", away)
    assert allowed() == breaker.Permit(dependency=DEPENDENCY, account=ACCOUNT)
    assert breaker.is_closed(DEPENDENCY, ACCOUNT)
    for permit in (probe, allowed()):
        breaker.failed(permit, 1)
        breaker.succeeded(permit)
        breaker.unused(permit)


def test_times_are_those_of_the_databases_clock(db: None, periods: pytest.MonkeyPatch) -> None:
    """A process whose own clock is a day off waits as long as everybody else."""
    fail()
    periods.setattr(clock, "now", lambda: datetime(2030, 1, 1, tzinfo=UTC))
    assert COOL_S - 1 < kept_back() <= COOL_S


# --- Retry-After ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0), (" 120 ", 120.0), ("0", 0.0), ("1.5", 1.5), ("86400", 3600.0), ("999999999", 3600.0), ("", None),
        ("-5", None), ("soon", None), ("1e3", None), ("12:00", None), ("Fri, 99 Foo 2026 00:00:00 GMT", None),
        ("٧", None), ("Sat, 01 Jan 2000 00:00:00 GMT", 0.0), ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
    ],
)  # fmt: skip
def test_retry_after_is_read_as_seconds_or_a_date_and_bounded_to_an_hour(text: str, seconds: float | None) -> None:
    assert Reply(status=503, headers={"retry-after": text}, body=b"").retry_after_s == seconds
    assert Reply(status=503, headers={}, body=b"").retry_after_s is None


@pytest.mark.parametrize("zone", ["GMT", "-0000", "+0000"])
def test_retry_after_of_a_date_counts_from_now(zone: str) -> None:
    at = format_datetime(clock.now().astimezone(UTC) + timedelta(seconds=90), usegmt=True).replace("GMT", zone)
    named = Reply(status=429, headers={"retry-after": at}, body=b"").retry_after_s
    assert named is not None and 85 < named <= 90


# --- what is seen --------------------------------------------------------------------------------------------


def test_open_breakers_are_found_by_doctor_and_metrics(db: None, periods: pytest.MonkeyPatch) -> None:
    def doctor() -> tuple[str, str]:
        return next((f.verdict, f.detail) for f in fleet.examine() if f.name == "breakers")

    def gauge() -> list[float]:
        found = [f for f in metrics.Gauges().collect() if f.name == "agentsite_breakers_open"]
        return [s.value for f in found for s in f.samples if s.labels == {"dependency": DEPENDENCY}]

    assert (doctor(), gauge()) == (("ok", "all are closed"), [0])
    fail()
    verdict, words = doctor()
    assert verdict == "warn" and words.startswith(f"1 not closed: business_system of {ACCOUNT} after 3 failures")
    assert gauge() == [1]


def test_console_lists_the_breakers_of_ones_own_tenants(world: World) -> None:
    world.settings(BREAKER_FAILURES="1")
    fail(1)
    fail(1, account="t_other@https://shop.example")
    fail(1, account="t_acme_in_2@https://shop.example")
    client = world.browser("ops_1")
    world.people["ops_1"].user_permissions.add(Permission.objects.get(codename="view_breaker"))
    page = client.get("/admin/tools/breaker/").content.decode()
    assert ACCOUNT in page and "t_other@" not in page and "t_acme_in_2@" not in page
    assert ">open<" in page
    root = Client()
    root.force_login(User.objects.create_superuser("root"))
    page = root.get("/admin/tools/breaker/").content.decode()
    assert ACCOUNT in page and "t_other@" in page and "t_acme_in_2@" in page
