"""A customer who writes very often: what staff read before they decide."""

from __future__ import annotations

import re

import pytest

from tests.world import World, final, gather, refund

pytestmark = pytest.mark.django_db(transaction=True)
THREAT = "My lawyer hears of this."


def test_page_shows_the_newest_words_of_a_customer_who_wrote_very_often(world: World) -> None:
    run = world.admit(script=[*gather(), refund(), final()])
    for number in range(31):
        world.message(run, f"Hello, number {number} here.")
    world.message(run, THREAT)
    run = world.resume(run)
    asked = world.approval(run)
    page = world.browser().get(f"/admin/approvals/approval/{asked.pk}/change/").content.decode()
    said = re.findall(r"<blockquote>(.*?)</blockquote>", page)
    assert said[1:] == [
        "2 earlier messages not shown here: see the run&#x27;s own page",
        *(f"Hello, number {number} here." for number in range(2, 31)), THREAT,
    ]  # fmt: skip
    assert (world.posts(), world.refunds()) == ([], [])


def test_page_of_a_customer_who_wrote_once_leaves_nothing_out(world: World) -> None:
    run = world.admit(script=[*gather(), refund(), final()])
    world.message(run, "Hello.")
    run = world.resume(run)
    page = world.browser().get(f"/admin/approvals/approval/{world.approval(run).pk}/change/").content.decode()
    assert "Hello." in page and "not shown here" not in page
