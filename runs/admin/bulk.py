"""Acts on many rows at once: runs retried now, writes looked at again. Part of a door: calls the keepers one by one.

Nothing that decides anything is done in bulk: each of these only makes due what is due later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from agentsite.refusals import Refusal
from agentsite.tenants.console import staff
from runs.admin import acts
from runs.models import Run, Write
from runs.store.by_hand import MAX_NOTE

MOST = 200
ACT = acts.ACTS["hurry"]


def retry_now(door: Any, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
    """Asks for one reason first, then makes each chosen run due; None leads back to the list."""
    rows = list(queryset[: MOST + 1])
    if len(rows) > MOST:
        messages.error(request, f"At most {MOST} at once. Nothing was changed.")
        return None
    sent = request.POST
    form = acts.Form(reason=sent.get("reason", ""), note=sent.get("note", ""), text="", seen_seq=-1)
    if "confirmed" not in sent:
        return _asked(door, request, rows, 200)
    by, refused = staff(request).get_username(), _form_refused(form)
    if refused is not None:
        messages.error(request, f"{refused.title} {refused.detail}".strip())
        return _asked(door, request, rows, refused.status)
    _tell(request, _each(rows, lambda run: acts.perform(ACT, run, form, by)), "due now; workers take them up")
    return None


def look_again(request: HttpRequest, queryset: QuerySet[Write], look: Callable[[Write, str], str]) -> None:
    """A worker looks each chosen write up now."""
    rows = list(queryset.select_related("run")[: MOST + 1])
    if len(rows) > MOST:
        messages.error(request, f"At most {MOST} at once. Nothing was changed.")
        return
    by = staff(request).get_username()
    _tell(request, _each(rows, lambda write: look(write, by)), "being looked at now; reload in a moment")


def _form_refused(form: acts.Form) -> Refusal | None:
    try:
        acts.check(ACT, form)
    except Refusal as refusal:
        return refusal
    return None


def _each(rows: Iterable[Any], do: Callable[[Any], object]) -> tuple[int, dict[str, int]]:
    """How many were done, and why how many were not."""
    done, refused = 0, dict[str, int]()
    for row in rows:
        try:
            do(row)
            done += 1
        except Refusal as refusal:
            refused[refusal.title] = refused.get(refusal.title, 0) + 1
    return done, refused


def _tell(request: HttpRequest, came: tuple[int, dict[str, int]], words: str) -> None:
    done, refused = came
    if done:
        messages.success(request, f"{done} {words}.")
    for title, count in refused.items():
        messages.warning(request, f"{count} left as they were: {title}")


def _asked(door: Any, request: HttpRequest, rows: list[Run], status: int) -> HttpResponse:
    context = {
        **door.admin_site.each_context(request), "opts": door.opts, "act": ACT, "rows": rows, "sent": request.POST,
        "title": f"{ACT.button}: {len(rows)} runs", "subtitle": None, "max_note": MAX_NOTE,
        "checkbox": ACTION_CHECKBOX_NAME, "back": request.get_full_path(),
    }  # fmt: skip
    request.current_app = door.admin_site.name
    return TemplateResponse(request, "admin/runs/run/bulk.html", context, status=status)
