"""Compares a replayed step with the recorded one, in words a person can act on. Pure; decides nothing.

Times and durations are no behaviour and are left out. The numbers of a check and a prompt's hash are information: what
they lead to is compared by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any

from agentsite.canonical import NotStrictJson, strict_loads
from runs.contracts import NewEvent, Outcome, RunState, SeenObservation
from runs.replay.record import Happened, Recorded, Step
from runs.store import folding
from tools.contracts import Json

TIMED = frozenset({"took_ms", "wait_s", "at", "waited_ms", "read_at", "fetched_at", "ages_s"})
NUMBERS = frozenset({"checks", "facts", "numbers"})
PROMPT = "prompt.built"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where a replay went another way: `where` names the step, `what` the thing, then both values as JSON."""

    where: str
    what: str
    recorded: Any
    now: Any

    def wire(self) -> Json:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """`differences` are changed behaviour; `information` may be a change that is wanted, such as a new prompt."""

    differences: tuple[Difference, ...] = ()
    information: tuple[Difference, ...] = ()


def where(step: Step, run: RunState) -> str:
    return f"version {step.version}, from {run.status.value}"


def of_step(
    step: Step, before: RunState, outcome: Outcome, events: Sequence[NewEvent], record: Recorded
) -> Compared:  # fmt: skip
    """What differs between the recorded step and what today's code made of it."""
    place = where(step, before)
    told = [*_transition(step, before, events), *_events(step, events), *_body(outcome, record)]
    told += _observations(folding.observed(before, outcome), record.observations)
    numbers = [*_numbers(step, events), *_prompt(step, events)]
    return Compared(differences=_at(place, told), information=_at(place, numbers))


def _at(place: str, found: Iterable[Difference]) -> tuple[Difference, ...]:
    return tuple(replace(one, where=f"{place}{one.where}") for one in found)


def _one(what: str, recorded: Any, now: Any, where_: str = "") -> Iterator[Difference]:
    if recorded != now:
        yield Difference(where=where_, what=what, recorded=recorded, now=now)


def _transition(step: Step, before: RunState, events: Sequence[NewEvent]) -> Iterator[Difference]:
    change = step.change
    now = next((e for e in events if e.type == "run.status"), None)
    recorded = _arrow(change.meta) if change else f"stays {before.status.value}"
    yield from _one("transition", recorded, _arrow(now.meta) if now else f"stays {before.status.value}")


def _arrow(meta: Mapping[str, Any]) -> str:
    why = f" ({meta['reason']})" if meta.get("reason") else ""
    return f"{meta['from']} → {meta['to']} on {meta.get('on')}{why}"


def _events(step: Step, events: Sequence[NewEvent]) -> Iterator[Difference]:
    """Kinds in their order first; then, where kind stands against kind, what each says."""
    then = [e for e in step.events if e.type != "run.status"]
    now = [e for e in events if e.type != "run.status"]
    yield from _one("events", [e.type for e in then], [e.type for e in now])
    for recorded, made in zip(then, now, strict=False):
        if recorded.type == made.type and made.type != PROMPT:
            yield from _fields(made.type, _said(recorded.data), _said({**made.meta, **(made.payload or {})}))


def _fields(kind: str, recorded: Json, now: Json) -> Iterator[Difference]:
    for name in sorted(recorded.keys() | now.keys()):
        yield from _one(f"{kind} {name}", recorded.get(name), now.get(name))


def _said(data: Json) -> Json:
    """An event's or an observation's data without times, its checks by name and verdict alone."""
    kept = {name: _timeless(value) for name, value in data.items() if name not in TIMED | NUMBERS}
    if "checks" in data:
        kept["checks"] = [f"{c['name']}: {'ok' if c['ok'] else 'no'}" for c in data["checks"]]
    return kept


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(inner) for name, inner in value.items() if name not in TIMED}
    return [_timeless(inner) for inner in value] if isinstance(value, list | tuple) else value


def _observations(made: Sequence[SeenObservation], recorded: Sequence[SeenObservation]) -> Iterator[Difference]:
    for now in made:
        then = recorded[now.position - 1] if now.position <= len(recorded) else None
        place = f", {now.obs_id}"
        yield from _one("observation", _titled(then) if then else None, _titled(now), place)
        if then is not None and isinstance(then.content, dict) and isinstance(now.content, dict):
            for one in _fields("observation", _said(then.content), _said(now.content)):
                yield replace(one, where=place)


def _titled(seen: SeenObservation) -> str:
    return f"{seen.kind} of {seen.source} {seen.call_id}".strip()


def _body(outcome: Outcome, record: Recorded) -> Iterator[Difference]:
    """The frozen body of an intent. What was refunded at that moment is no part of the action, and was not kept."""
    if outcome.intent is None:
        return
    release = outcome.intent.release
    stored = record.writes.get(release.key)
    if stored is None or stored["decision_id"] != release.decision_id:
        return  # remade since, under the same key
    yield from _fields("body", _action(stored["body"]), _action(release.body))


def _action(body: str) -> Json:
    try:
        found: Json = strict_loads(body)
    except NotStrictJson:
        return {"unreadable": body}
    return {name: value for name, value in found.items() if name != "expected_refunded"}


def _numbers(step: Step, events: Sequence[NewEvent]) -> Iterator[Difference]:
    """The numbers of the checks, side by side: where a rule moved, they show by how much."""
    then = step.first("gate.decided")
    now = next((e for e in events if e.type == "gate.decided"), None)
    if then is None or now is None:
        return
    made = {c["name"]: c.get("inputs", {}) for c in (now.payload or {}).get("checks", ())}
    for check in (then.payload or {}).get("checks", ()):
        if check["name"] in made:
            yield from _fields(check["name"], _timeless(check.get("inputs", {})), _plain(made[check["name"]]))


def _plain(numbers: Json) -> Json:
    """As it reads after a journey through JSON: pairs are lists there."""
    timeless: Json = _timeless(numbers)
    return timeless


def _prompt(step: Step, events: Sequence[NewEvent]) -> Iterator[Difference]:
    then, now = _prompts(step.events), _prompts(events)
    for recorded, made in zip_longest(then, now):
        if recorded is not None and made is not None:
            yield from _fields("prompt", recorded, made)


def _prompts(events: Sequence[NewEvent] | Sequence[Happened]) -> list[Json]:
    return [e.meta for e in events if e.type == PROMPT]
