"""Door: template tags of the console's first page and of its pages of runs. None returns markup: templates escape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import template

from approvals import labels
from runs.admin import board as boards
from runs.admin import waterfall

if TYPE_CHECKING:
    from django.contrib.auth.models import User

register = template.Library()
register.filter("approval_status", labels.status)


@register.simple_tag
def board(user: User) -> boards.Board:
    """The numbers of the first page, as this person may see them."""
    return boards.read(user)


@register.filter
def took(milliseconds: int) -> str:
    """A length of time as it is read at a glance."""
    return waterfall.short(milliseconds / 1000)


@register.filter
def chosen_filters(change_list: Any) -> list[Any]:
    """The filters of a list that are not its tabs."""
    return [spec for spec in change_list.filter_specs if not getattr(spec, "as_tabs", False)]


@register.filter
def acts(form: Any) -> list[tuple[str, str]]:
    """What a list's form offers to do with chosen rows, as (name, words)."""
    return [(slug, words) for slug, words in form.fields["action"].choices if slug]
