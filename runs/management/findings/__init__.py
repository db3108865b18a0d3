"""Door: what `doctor` looks at, one finding a line, without any secret. Looks and asks; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from runs.management import schema
from runs.management.findings import configuration, database, fleet, outside, searching, tenants
from runs.management.findings.finding import FAIL, OK, WARN, Finding

__all__ = ["FAIL", "OK", "WARN", "Finding", "examine"]


def examine() -> Iterator[Finding]:
    """Every finding, in an order in which the first failure explains those after it.

    Without a usable database what stands in it is not looked at.
    """
    yield from configuration.examine()
    away = schema.fault()
    yield from database.examine(away)
    if away is None:
        yield from tenants.examine()
        yield searching.of_endpoint()
        yield from fleet.examine()
        yield from outside.examine()
