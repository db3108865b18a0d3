"""A model that says megabytes costs the thread that watches all calls no more than one that says a page."""

from __future__ import annotations

from runs import store
from runs.models import Draft
from runs.store.under_way import MAX_DRAFT, MAX_READ, Spoken
from tests.world import World


def test_draft_past_all_length_is_looked_through_no_further_than_its_bound(world: World) -> None:
    run = world.admit()
    said = "a" * MAX_READ + "z" * 8_000_000
    store.keep_drafts([Spoken(run_id=str(run.pk), route="openai:m", thinking="", text=said)])
    assert Draft.objects.get(run=run).text == "a" * MAX_DRAFT


def test_secret_that_the_bound_cuts_in_two_is_shown_in_no_part(world: World) -> None:
    world.settings(OPENAI_API_KEY=(secret := "sk-abcdefghijklmnopqrstuvwxyz"))
    run = world.admit()
    said = "a " * (MAX_READ // 2 - 10) + secret
    store.keep_drafts([Spoken(run_id=str(run.pk), route="openai:m", thinking="", text=said)])
    assert secret[:8] not in Draft.objects.get(run=run).text
