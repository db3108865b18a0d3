"""One line of `doctor`: a name, a verdict, and words that say what to do where something is wrong. A paper."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`verdict` is `ok`, `warn` (it works, look at it) or `fail` (it does not work)."""

    name: str
    verdict: str
    detail: str

    def wire(self) -> dict[str, Any]:
        return asdict(self)


def ok(name: str, detail: str) -> Finding:
    return Finding(name=name, verdict=OK, detail=detail)


def warn(name: str, detail: str) -> Finding:
    return Finding(name=name, verdict=WARN, detail=detail)


def fail(name: str, detail: str) -> Finding:
    return Finding(name=name, verdict=FAIL, detail=detail)
