"""Reads a prompt's text back into goal, snapshot and observations, as a model does. Imports no Django and no zone.

The models of this package see nothing but the prompt's text: what is not in it does not exist for them, and what is
odd in it is skipped, never an exception.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field, replace
from typing import Any

from agentsite.canonical import NotStrictJson, strict_loads
from runs.contracts import Prompt
from tools.contracts import Json

# The last one counts: it is the end of a prompt, and no text of anybody else begins a line.
_SNAPSHOT = re.compile(r"^\[5\] TASK STATE SNAPSHOT", re.MULTILINE)
# JSON of the untrusted layers holds no angle bracket, so a tag's body ends at the first one.
_TAG = re.compile(
    r"^<(goal|call|about|observation|compacted)((?: [a-z_]+=\"[^\"<>]*\")*)>([^<>\n]*)</\1>$", re.MULTILINE
)
_ATTRIBUTE = re.compile(r" ([a-z_]+)=\"([^\"]*)\"")
_NUMBERED = re.compile(r"obs_[0-9]{1,9}", re.ASCII)
_LINE = re.compile(r"^([a-z_]+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One observation as the prompt shows it; `position` counts from 0. Odd content is None."""

    obs_id: str
    position: int
    source: str
    kind: str
    call_id: str
    args: Json
    content: Any

    @property
    def ok(self) -> bool:
        return self.kind == "result"

    def get(self, name: str) -> Any:
        return self.content.get(name) if isinstance(self.content, dict) else None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Everything a model knows: the customer and the goal, the snapshot's fields, the observations in order."""

    customer: str = ""
    goal: str = ""
    snapshot: Json = field(default_factory=dict)
    observations: tuple[Shown, ...] = ()

    @property
    def model_calls_used(self) -> int:
        used = self.snapshot.get("model_calls_used")
        return used if type(used) is int and used >= 0 else 0

    def latest_id(self, source: str) -> str | None:
        """The id of the newest observation from that source."""
        return next((o.obs_id for o in reversed(self.observations) if o.source == source), None)


def read(prompt: Prompt) -> Seen:
    """What a prompt's text says. Never raises for any text."""
    user = "\n".join(m.content for m in prompt.messages if m.role == "user")
    asked: Json = {}
    about = ""
    customer, goal = "", ""
    shown: list[Shown] = []
    for name, attributes, body in _TAG.findall(user):
        values = {key: html.unescape(value) for key, value in _ATTRIBUTE.findall(attributes)}
        if name == "goal":
            customer, goal = values.get("customer", ""), _text(_json(body))
        elif name in ("call", "about"):
            asked, about = _object(_json(body)), values.get("call", "")
        elif name == "compacted":
            shown += _kept(_object(_json(body)), len(shown))
        else:
            shown.append(_shown({"call": about, **values}, body, asked, len(shown)))
            asked, about = {}, ""
    return Seen(customer=customer, goal=goal, snapshot=_snapshot(user), observations=_in_order(shown))


def _in_order(shown: list[Shown]) -> tuple[Shown, ...]:
    """As they were told: their ids count up, while a turn shows the results of its calls before what stood beside."""
    if not all(_NUMBERED.fullmatch(one.obs_id) for one in shown):
        return tuple(shown)
    ordered = sorted(shown, key=lambda one: int(one.obs_id.partition("_")[2]))
    return tuple(replace(one, position=n) for n, one in enumerate(ordered))


def _shown(values: dict[str, str], body: str, asked: Json, position: int) -> Shown:
    return Shown(
        obs_id=values.get("id", ""),
        position=position,
        source=values.get("source", ""),
        kind=values.get("kind", "result"),
        call_id=values.get("call", ""),
        args=asked,
        content=_json(body),
    )


def _kept(turn: Json, position: int) -> list[Shown]:
    """What a compacted turn still says: who said no to what. Its results are not there to conclude from."""
    calls, beside = turn.get("calls"), turn.get("beside")
    entries = [*(calls if isinstance(calls, list) else []), *(beside if isinstance(beside, list) else [])]
    return [_kept_one(entry, position + n) for n, entry in enumerate(e for e in entries if isinstance(e, dict))]


def _kept_one(entry: Json, position: int) -> Shown:
    kind = _text(entry.get("kind"))
    return Shown(
        obs_id=_text(entry.get("observation")), position=position, source=_text(entry.get("source", entry.get("tool"))),
        kind=kind if kind in ("denial", "decision") else "compacted", call_id=_text(entry.get("call")),
        args=_object(entry.get("args")), content=entry.get("told"),
    )  # fmt: skip


def _snapshot(user: str) -> Json:
    *_, layer = _SNAPSHOT.split(user)
    return {name: _json(value) for name, value in _LINE.findall(layer)} if _SNAPSHOT.search(user) else {}


def _json(text: str) -> Any:
    try:
        return strict_loads(text)
    except NotStrictJson:
        return None


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
