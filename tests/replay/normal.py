"""Makes an exported run the same whenever it is recorded: ids in their order, times from one noon, durations of one.

What was random gets a name by its kind; what is hashed is hashed again. The audit chain of a record that was changed
proves nothing, so it is left out, and with it what an export holds twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from agentsite.canonical import sha256
from agentsite.clock import parse_rfc3339
from runs import replay

Json = dict[str, Any]
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.(\d{3,6})Z")
NAMES = ((re.compile(r"apr_[0-9a-f]{20}"), "apr_{}"), (re.compile(r"\brf_[0-9a-z]+\b"), "rf_{}"))
DURATIONS = ("took_ms", "waited_ms", "active_ms", "ages_s")
CHAIN = ("salt", "digest", "prev", "mac", "key_id")
TWICE = ("checks", "facts", "evidence")


def normal(document: Json) -> Json:
    """The normalised record, whose prompts have the hashes that its new times give them."""
    created = parse_rfc3339(document["run"]["created_at"])
    text = _named(json.dumps(_lean(document)), document)
    text = TIME.sub(_shift(created, NOON - created), text)
    made = _hashed(json.loads(text))
    return _with_today_s_prompts(made)


def _lean(document: Json) -> Json:
    lean: Json = json.loads(json.dumps(document))
    lean["run"]["chain_head"] = ""
    for event in lean["events"]:
        event.update(dict.fromkeys(CHAIN, ""))
    for approval in lean["approvals"]:
        approval.update({name: None for name in TWICE})
    lean["gate"] = []
    timed: Json = _timed(lean)
    return timed


def _timed(value: Any) -> Any:
    """Durations as one millisecond: they differ from machine to machine and decide nothing."""
    if isinstance(value, dict):
        return {k: _one(inner) if k in DURATIONS else _timed(inner) for k, inner in value.items()}
    return [_timed(inner) for inner in value] if isinstance(value, list) else value


def _one(duration: Any) -> Any:
    return [1] * len(duration) if isinstance(duration, list) else 1


def _named(text: str, document: Json) -> str:
    for pattern, name in NAMES:
        found = dict.fromkeys(pattern.findall(text))
        for number, one in enumerate(found, start=1):
            text = text.replace(one, name.format(number))
    routes = {t["route"] for t in document["turns"]}
    for route in sorted(routes):
        path = route.partition(":")[2]
        text = text.replace(path, "corpus")
    text = text.replace(document["run"]["trace_id"], "0" * 31 + "1")
    return text.replace(document["backend"]["url"], "http://commerce.example")


def _shift(created: datetime, by: timedelta) -> Callable[[re.Match[str]], str]:
    def shifted(found: re.Match[str]) -> str:
        moment = parse_rfc3339(found.group())
        if moment < created - timedelta(minutes=1):
            return found.group()  # of the world before: a capture, a policy
        later, digits = moment + by, len(found.group(1))
        return later.strftime("%Y-%m-%dT%H:%M:%S.%f")[: 20 + digits] + "Z"

    return shifted


def _hashed(document: Json) -> Json:
    for seen in document["observations"]:
        seen["content_hash"] = sha256(seen["content"])
    return document


def _with_today_s_prompts(document: Json) -> Json:
    text = replay.text(document)
    for one in replay.play(document).information:
        if one.what == "prompt hash":
            text = text.replace(one.recorded, one.now)
    found: Json = json.loads(text)
    return found
