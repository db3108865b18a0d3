"""Every route of the REST API, found from the URL conf, so that a new one is tested by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.urls import URLPattern, URLResolver, get_resolver

PREFIX = "api/v1/"
METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, kw_only=True)
class Route:
    """`template` is the path as OpenAPI writes it; `methods` what its view offers; `names` what stands in braces."""

    template: str
    methods: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.template)

    def path(self, **ids: str) -> str:
        return self.template.format(**ids)


def api_routes() -> list[Route]:
    found: dict[str, Route] = {}
    for path, view in _patterns(get_resolver().url_patterns, ""):
        if path.startswith(PREFIX):
            template = "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path)
            methods = tuple(m for m in METHODS if hasattr(view, m))
            found[template] = Route(template=template, methods=methods)
    return list(found.values())


def _patterns(patterns: list[URLPattern | URLResolver], before: str) -> Iterator[tuple[str, object]]:
    for pattern in patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _patterns(pattern.url_patterns, path)
        else:
            yield path, getattr(pattern.callback, "view_class", pattern.callback)
