"""Finds the lines of one run in log files of any of our processes, among lines that are no JSON or not ours.

Reads files alone. What is missing (a gap in the sequence), doubled (left out) or contradictory is said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from runs import loglines
from tools.contracts import Json

Opened = Callable[[], AbstractContextManager[IO[str]]]
"""Opens a log for one reading of it, line by line."""
LONGEST, LAST = 4_000_000, 1_000_000
"""Characters of a line and number of an event beyond which a line is none of ours: who forges one fills no memory."""


class NotTold(Exception):
    """The lines tell no story: the message is for people. `usage`: the question was not clear."""

    def __init__(self, words: str, *, usage: bool = False) -> None:
        super().__init__(words)
        self.usage = usage


SAID_ONCE = ("event", "mac", "data", "at")
"""What two lines of one event agree on."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A run's lines, each once, in the order of its record.

    `events` are its events' lines; `stands` how its commits left it; `decisions` what people said. `missing` are
    sequence numbers without a line, `doubled` lines that stood there again.
    """

    events: tuple[Json, ...]
    stands: tuple[Json, ...]
    decisions: tuple[Json, ...]
    missing: tuple[int, ...]
    doubled: int


def find(logs: Sequence[Opened], name: str, tenant: str | None = None) -> Lines:
    """The lines of the run with this run id, trace id or request id. Raises NotTold, also where lines contradict."""
    run_id = _run_id(list(_named(logs, name, tenant)), name)
    return _sorted([line for line in _parsed(logs, run_id) if line.get("run_id") == run_id])


def _named(logs: Sequence[Opened], name: str, tenant: str | None) -> Iterator[Json]:
    wanted = (name, name.replace("-", "").lower(), json.dumps(name)[1:-1])  # as it may stand in a line
    for line in _parsed(logs, *wanted):
        ours = _is_event(line) and (tenant is None or line.get("tenant") == tenant)
        if ours and (name in (line["run_id"], line.get("request_id")) or line.get("trace_id") in wanted):
            yield line


def _run_id(found: Sequence[Json], name: str) -> str:
    """One run: by its own id, else the oldest of this trace, else the one of this request."""
    runs = {str(line["run_id"]): line for line in reversed(found)}
    if name in runs:
        return name
    traced = [line for line in found if line.get("trace_id") in (name, name.replace("-", "").lower())]
    if traced:
        return str(min(traced, key=lambda line: str(line.get("at")))["run_id"])
    if not runs:
        raise NotTold(f"no line of these logs has the run id, trace id or request id {name!r}")
    if len(runs) > 1:
        tenants = ", ".join(sorted({str(line.get("tenant")) for line in runs.values()}))
        raise NotTold(f"{name!r} is a request of {tenants}: name the tenant with --tenant", usage=True)
    return next(iter(runs))


def _parsed(logs: Sequence[Opened], *words: str) -> Iterator[Json]:
    """The lines of ours that hold one of these words; most lines of a large log are never parsed."""
    for opened in logs:
        with opened() as log:
            for text in _texts(log):
                if any(word in text for word in words):
                    line = _json(text)
                    if line is not None:
                        yield line


def _texts(log: IO[str]) -> Iterator[str]:
    """The lines of a log; of one that is too long nothing."""
    whole = True
    for text in iter(partial(log.readline, LONGEST), ""):
        ends = text.endswith("\n")
        if whole and (ends or len(text) < LONGEST):
            yield text
        whole = ends


def _json(text: str) -> Json | None:
    """A line's object; whatever a collector put before it is passed over."""
    try:
        line = json.loads(text[max(0, text.find("{")) :], object_pairs_hook=_object, parse_constant=_number)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and _is(line, str, "event", "run_id") else None


def _number(word: str) -> float:
    raise ValueError(f"{word} is none")


def _object(pairs: Sequence[tuple[str, Any]]) -> Json:
    """We say each thing once."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _is(line: Json, kind: type, *names: str) -> bool:
    return all(type(line.get(name)) is kind for name in names)


def _is_event(line: Json) -> bool:
    return _is(line, str, "mac", "at") and _is(line, dict, "data") and _is_numbered(line)


def _is_numbered(line: Json) -> bool:
    return _is(line, int, "seq", "version") and 1 <= line["seq"] <= LAST


def _sorted(lines: Sequence[Json]) -> Lines:
    events, doubled = dict[int, Json](), 0
    for line in lines:
        if not _is_event(line):
            continue
        earlier = events.setdefault(line["seq"], line)
        if earlier is not line:
            doubled += 1
            if any(earlier[name] != line[name] for name in SAID_ONCE):
                raise NotTold(f"two lines say different things of event {line['seq']}: one of them is not the run's")
    stands = _once([line for line in lines if _is_numbered(line)], loglines.STANDS, "version")
    decisions = _once([line for line in lines if _is(line, str, "at")], loglines.DECISION, "at")
    last = max([*events, *(line["seq"] for line in stands)], default=0)
    return Lines(
        events=tuple(events[seq] for seq in sorted(events)), stands=stands, decisions=decisions, doubled=doubled,
        missing=tuple(sorted(set(range(1, last + 1)) - set(events))),
    )  # fmt: skip


def _once(lines: Sequence[Json], kind: str, order: str) -> tuple[Json, ...]:
    """Lines of one kind, each once, in their order."""
    found = {json.dumps(_told(line), sort_keys=True): line for line in lines if line["event"] == kind}
    return tuple(sorted(found.values(), key=lambda line: line[order]))


def _told(line: Json) -> Json:
    """A line without the moment it was written at."""
    return {name: found for name, found in line.items() if name != "timestamp"}
