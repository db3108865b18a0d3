"""Door: the console's template filters, each one of `approvals.labels`. None returns markup: templates escape."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template

from agentsite import clock, text
from approvals import labels

register = template.Library()
register.filter("spoken", labels.spoken)
register.filter("pretty", labels.pretty)
register.filter("words", labels.words)
register.filter("tone", labels.tone)
register.filter("run_status", labels.run_status)
register.filter("value", labels.value)


@register.filter
def visible(thing: Any) -> str:
    """One line, every invisible character written out."""
    return text.visible(str(thing if thing is not None else ""))


@register.filter
def moment(at: datetime | None) -> str:
    """An absolute time with its zone; a dash where there is none."""
    return labels.moment(at) if at else "–"


@register.filter
def when(stamp: str) -> str:
    """The same from an RFC 3339 string; what is none of these is shown as it is."""
    try:
        return labels.moment(clock.parse_rfc3339(stamp))
    except ValueError:
        return text.visible(stamp)


register.filter("short", labels.short_hash)
register.simple_tag(labels.amount, name="money")
register.simple_tag(labels.rule, name="rule")
