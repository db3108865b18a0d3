"""Door: parameters of the API as the OpenAPI document describes them. What reads them is `bodies` and `pages`."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter

from runs.api import bodies, pages
from runs.contracts import ID_PATTERN
from runs.states import Status
from tools.contracts import Json


def query(name: str, kind: Json, words: str = "") -> OpenApiParameter:
    return OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=words)


def number(name: str, least: int, most: int, words: str = "") -> OpenApiParameter:
    return query(name, {"type": "integer", "minimum": least, "maximum": most}, words)


def header(name: str, words: str, **kind: str) -> OpenApiParameter:
    return OpenApiParameter(name, {"type": "string", **kind}, OpenApiParameter.HEADER, description=words)


ID_KIND: Json = {"type": "string", "pattern": ID_PATTERN}
TIME_KIND: Json = {"type": "string", "format": "date-time"}
AFTER = number("after", 0, bodies.MAX_SEQ, "What stands after this number.")
FILTERS = [
    query("status", {"type": "string"}, "One status, or several with commas: " + ", ".join(s.value for s in Status)),
    *(query(name, ID_KIND) for name in ("request_id", "customer_id", "order_id")),
    query("created_after", TIME_KIND),
    query("created_before", TIME_KIND),
    query("cursor", {"type": "string"}, "From a page's `next` or `previous`."),
    number("limit", 1, pages.MAX_LIMIT),
]
