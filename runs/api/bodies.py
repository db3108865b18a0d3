"""Door: bodies and query strings from outside, read strictly; every fault names its field. Imports no store, no zone.

Pydantic is the one schema language; what it refuses becomes JSON pointers, and what was sent is never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from django.http import QueryDict
from pydantic import BaseModel, Field, ValidationError

from agentsite import clock
from agentsite.refusals import Refusal
from agentsite.tenants.profiles import Paper
from agentsite.text import storable
from runs.attachments import Attachments
from runs.contracts import ID_PATTERN, CleanText, Goal, Id

Body = TypeVar("Body", bound=BaseModel)
Fault = dict[str, Any]
FORBIDDEN = re.compile("[\x00\ud800-\udfff]")
MAX_FAULTS = 50
MAX_POINTER_CHARS = 300
MAX_SEQ = 2_147_483_647


class MessageBody(Paper):
    """`POST /runs/{run_id}/messages`. Without a `message_id` two equal messages are two messages."""

    text: Goal
    message_id: Id | None = None
    attachments: Attachments | None = None


class FeedbackBody(Paper):
    """`POST /runs/{run_id}/feedback`."""

    rating: Literal["up", "down"]
    text: Annotated[CleanText, Field(max_length=4000)] = ""


class CancelBody(Paper):
    """`POST /runs/{run_id}/cancel`."""

    reason: Annotated[CleanText, Field(max_length=2000)] = ""


def parse(model: type[Body], data: Any) -> Body:
    """A body as its type. Raises Refusal 400 `invalid-request` that points at every field at fault."""
    forbidden = [_fault(p, "forbidden_text", "no NUL and no lone surrogate") for p in _forbidden(data, "")]
    if forbidden:
        raise invalid(forbidden)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise invalid(at_fault(error)) from None


def invalid(faults: list[Fault]) -> Refusal:
    """The 400 every malformed field ends in; `detail` repeats the first fault for those who read nothing else."""
    first = faults[0] if faults else _fault("", "invalid", "not as described")
    detail = f"{first['pointer'] or 'body'}: {first['detail']}"
    return Refusal(400, "invalid-request", "The request is not valid.", detail, faults[:MAX_FAULTS])


def at_fault(error: ValidationError) -> list[Fault]:
    """Each fault of a pydantic error as pointer, code and words; never the input."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [_fault(_pointer(e["loc"]), e["type"], e["msg"].removeprefix("Value error, ")) for e in found[:MAX_FAULTS]]


def _fault(pointer: str, code: str, detail: str) -> Fault:
    return {"pointer": pointer[:MAX_POINTER_CHARS], "code": code, "detail": detail}


def _pointer(location: tuple[int | str, ...]) -> str:
    return "".join("/" + _step(str(part)) for part in location)


def _step(name: str) -> str:
    # RFC 6901 escapes; a client's own key may hold anything, so invisible characters are written out.
    return storable(name).replace("~", "~0").replace("/", "~1")


def _forbidden(value: Any, pointer: str) -> Iterator[str]:
    if isinstance(value, str):
        if FORBIDDEN.search(value):
            yield pointer
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _forbidden(item, f"{pointer}/{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = f"{pointer}/{_step(key)}"
            if FORBIDDEN.search(key):
                yield inner
            yield from _forbidden(item, inner)


def check_idempotency_key(header: str | None, request_id: str) -> None:
    """The header, bare or as a structured string, says the same as the body or the request is refused (400)."""
    if header is None:
        return
    key = header.strip()
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if key != request_id:
        raise invalid([_fault("/request_id", "idempotency_key_differs", "the Idempotency-Key header must equal it")])


def only(query: QueryDict, allowed: frozenset[str]) -> None:
    """Raises Refusal 400 for a query parameter that is not offered or comes twice: a typo must not widen a list."""
    faults = [_fault(f"/{_step(name)}", "unknown_parameter", "no such parameter") for name in query.keys() - allowed]
    twice = [n for n in query.keys() & allowed if len(query.getlist(n)) > 1]
    faults += [_fault(f"/{name}", "repeated_parameter", "once only") for name in twice]
    if faults:
        raise invalid(sorted(faults, key=lambda fault: str(fault["pointer"])))


def integer(query: QueryDict, name: str, *, default: int, least: int, most: int) -> int:
    """A whole number from the query string, within its bounds. Raises Refusal 400."""
    text = query.get(name)
    if text is None:
        return default
    if not re.fullmatch("[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise invalid([_fault(f"/{name}", "out_of_range", f"a whole number from {least} to {most}")])
    return int(text)


def last_event_id(header: str | None) -> int:
    """The sequence number a client of a stream saw last; 0 without the header. Raises Refusal 400."""
    text = (header or "").strip() or "0"
    if not re.fullmatch("[0-9]{1,10}", text):
        raise invalid([_fault("/Last-Event-ID", "out_of_range", "the id of an event of this stream")])
    return min(int(text), MAX_SEQ)


def identifier(query: QueryDict, name: str) -> str | None:
    """An id from the query string. Raises Refusal 400."""
    text = query.get(name)
    if text is not None and not re.fullmatch(ID_PATTERN, text):
        raise invalid([_fault(f"/{name}", "string_pattern_mismatch", "an id")])
    return text


def moment(query: QueryDict, name: str) -> datetime | None:
    """An RFC 3339 time with an offset from the query string. Raises Refusal 400."""
    text = query.get(name)
    if text is None:
        return None
    try:
        # A plus sign that was not percent-encoded arrives as a space.
        return clock.parse_rfc3339(text.replace(" ", "+") if "T" in text else text)
    except (ValueError, OverflowError):
        raise invalid([_fault(f"/{name}", "not_a_time", "an RFC 3339 time, such as 2026-11-29T12:00:00Z")]) from None
