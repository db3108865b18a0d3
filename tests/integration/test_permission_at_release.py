"""A yes counts while its giver may still give it: lost before the release, a person is asked afresh (M36)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from agentsite.tenants.models import StaffTenant
from approvals.models import Approval
from tests.world import World

LOST: dict[str, Callable[[User], object]] = {
    "permission": lambda lead: lead.user_permissions.clear(),
    "tenant": lambda lead: StaffTenant.objects.filter(user=lead).delete(),
    "account": lambda lead: User.objects.filter(pk=lead.pk).update(is_active=False),
}


@pytest.mark.parametrize("lost", LOST)
def test_permission_lost_between_yes_and_release_asks_afresh(world: World, lost: str) -> None:
    run = world.start()
    first = world.approval(run)
    world.approve(run)
    LOST[lost](world.person())
    run = world.resume(run, until="awaiting_approval")
    first.refresh_from_db()
    second = world.approval(run)
    assert (first.status, second.status, second.pk != first.pk) == ("void", "pending", True)
    assert (second.action_hash, world.posts(), world.refunds()) == (first.action_hash, [], [])
    world.approve(run, by="lead_18")
    assert world.resume(run, until="completed").outcome == "refunded"
    assert Approval.objects.get(status="consumed").decided_by == "lead_18"
    assert len(world.posts()) == len(world.refunds()) == 1


def test_one_of_two_who_lost_it_is_enough(world: World) -> None:
    world.limits(two_people_above="1500.00")
    run = world.start()
    for name in ("senior_1", "senior_2"):
        world.approve(run, by=name, large=True)
    world.person("senior_1").user_permissions.clear()
    world.resume(run, until="awaiting_approval")
    assert (world.posts(), world.approval(run).status) == ([], "pending")
