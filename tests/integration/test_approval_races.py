"""Several people and workers at one approval at one moment; each on a connection of its own, on both databases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection, transaction

from agentsite.refusals import Refusal
from agentsite.tenants.models import StaffTenant
from approvals import queue
from approvals.models import Approval, Decision
from tests import approving
from tests.approving import consume, counted, decide

pytestmark = pytest.mark.django_db(transaction=True)


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """Runs each call on a connection of its own, all let go at one moment; results or refusals in order."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            gate.wait(10)
            return call()
        except Refusal as refusal:
            return refusal
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        futures: list[Future[Any]] = [pool.submit(run, call) for call in calls]
    return [future.result() for future in futures]


def test_of_two_opposite_decisions_in_one_instant_exactly_one_counts() -> None:
    ann, bob = approving.person("ann"), approving.person("bob")
    for number in range(8):
        approval = Approval.objects.get(pk=approving.ask(approving.run(request_id=f"req-{number}")))
        results = in_threads(partial(decide, approval, ann), partial(decide, approval, bob, "reject", reason="no"))
        approval.refresh_from_db()
        won = next(r for r in results if isinstance(r, queue.Decided))
        lost = next(r for r in results if isinstance(r, Refusal))
        assert lost.slug == "already-decided"
        assert lost.detail.startswith(f"{won.by} {queue.SPOKEN[won.decision]} it at ")
        assert (approval.status, approval.decided_by) == (queue.SPOKEN[won.decision], won.by)
        rows = list(Decision.objects.filter(approval=approval).order_by("id").values_list("by", "counted"))
        assert rows == [(won.by, True), ("bob" if won.by == "ann" else "ann", False)]


def test_one_person_clicking_many_times_at_once_decides_once() -> None:
    lead = approving.person()
    approval = Approval.objects.get(pk=approving.ask(approving.run(), required=2))
    results = in_threads(*[partial(decide, approval, lead)] * 6)
    assert sorted(r.kind for r in results) == ["recorded"] + ["same-again"] * 5
    assert counted(approval) == [("lead_17", "approve")]


def test_an_approval_is_consumed_or_void_but_never_both() -> None:
    lead = approving.person()
    for number in range(8):
        approval = Approval.objects.get(pk=approving.ask(approving.run(request_id=f"req-{number}")))
        decide(approval, lead)
        use, void = partial(consume, approval), partial(queue.void, str(approval.run_id), "message")
        used, again, voided = in_threads(use, use, void)
        assert [used, again, voided is not None].count(True) == 1
        approval.refresh_from_db()
        assert approval.status == ("void" if voided else "consumed")


@pytest.mark.parametrize("lost", ["permission", "membership", "groups permission", "tenant", "active"])
def test_a_revocation_waits_for_the_intent_that_relied_on_the_grant(lost: str) -> None:
    group = Group.objects.create(name="approvers of a test")
    group.permissions.set(Permission.objects.filter(codename="decide_approval"))
    by_group = lost in ("membership", "groups permission")
    lead = approving.person(may=() if by_group else approving.DECIDER)
    if by_group:
        lead.groups.add(group)
    approval = Approval.objects.get(pk=approving.ask(approving.run()))
    decide(approval, lead)
    revoke: dict[str, Callable[[], Any]] = {
        "permission": lead.user_permissions.clear,
        "membership": lead.groups.clear,
        "groups permission": group.permissions.clear,
        "tenant": lambda: StaffTenant.objects.filter(user=lead).delete(),
        "active": lambda: User.objects.filter(pk=lead.pk).update(is_active=False),
    }
    done = threading.Event()

    def revoking() -> None:
        try:
            revoke[lost]()
            done.set()
        finally:
            connection.close()

    thread = threading.Thread(target=revoking)
    with transaction.atomic():
        assert queue.permitted(approval.pk)
        thread.start()
        time.sleep(0.4)
        assert not done.is_set()
        assert queue.permitted(approval.pk)
        assert queue.consume(approval.pk, approval.action_hash)
    thread.join(20)
    assert done.is_set()
    assert not queue.permitted(approval.pk)


@pytest.mark.parametrize("lost", ["permission", "tenant", "active"])
def test_an_intent_waits_for_the_revocation_under_way_and_is_judged_by_it(lost: str) -> None:
    """One that began before the intent asked and ends while it waits: SQLite asks after it, PostgreSQL holds on."""
    lead = approving.person()
    approval = Approval.objects.get(pk=approving.ask(approving.run()))
    decide(approval, lead)
    revoke: dict[str, Callable[[], Any]] = {
        "permission": lead.user_permissions.clear,
        "tenant": lambda: StaffTenant.objects.filter(user=lead).delete(),
        "active": lambda: User.objects.filter(pk=lead.pk).update(is_active=False),
    }
    permitted = list[bool]()

    def intending() -> None:
        try:
            with transaction.atomic():
                permitted.append(queue.permitted(approval.pk))
        finally:
            connection.close()

    thread = threading.Thread(target=intending)
    with transaction.atomic():
        revoke[lost]()
        thread.start()
        time.sleep(0.4)
        assert permitted == []
    thread.join(20)
    assert permitted == [False]
