"""Other people's words as lines of text that can do nothing: the tags of a prompt's untrusted layers.

A paper: pure, imports no Django, clock, store or zone. In a line made here no `<`, `>`, `&`, line break or invisible
character of the content survives unescaped, so that nothing in it can close its wrapper or begin a line.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

from agentsite.text import INVISIBLE, JOINERS, visible
from runs.contracts import SeenObservation
from tools.contracts import Proposal

FORMS = (
    '<goal customer="ID">JSON string</goal>',
    '<call id="CALL" tool="NAME">JSON arguments</call>',
    '<observation id="ID" source="TOOL" fetched_at="TIME" call="CALL" kind="KIND" form="reference">JSON</observation>',
    '<unanswered call="CALL">JSON string</unanswered>',
    '<about call="CALL" tool="NAME">JSON arguments</about>',
    '<compacted turn="NUMBER">JSON</compacted>',
    "<omitted>JSON</omitted>",
)
UNANSWERED = "no result of this call is recorded: it proves nothing, neither that it was done nor that it was not"

_DOUBTFUL = re.compile(r"[<>&\x7f]|[^\x00-\x7f]")
_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(", ", ": ")).encode
_POLICY_FIELDS = ("doc", "version", "section")
Pairs = Iterable[tuple[str, object]]


def tag(name: str, pairs: Pairs, content: object) -> str:
    """One line: a tag around JSON."""
    return _tag(name, pairs, inert_json(content))


def _tag(name: str, pairs: Pairs, body: str) -> str:
    return f"<{name}{_attributes(pairs)}>{body}</{name}>"


def observation(seen: SeenObservation, *, body: str, tied: bool, reference: bool = False) -> str:
    """What was told, on one line, as inert JSON; an observation `tied` to a call that is shown names it."""
    pairs: list[tuple[str, object]] = [
        ("id", seen.obs_id), ("source", seen.source), ("fetched_at", _time(seen.fetched_at)),
    ]  # fmt: skip
    if tied:
        pairs.append(("call", seen.call_id))
    if not seen.ok:
        pairs.append(("kind", seen.kind))
    if reference:
        pairs.append(("form", "reference"))
    return _tag("observation", [*pairs, *_policy(seen)], body)


def call(proposal: Proposal) -> str:
    pairs = [("id", proposal.call_id), ("tool", proposal.tool)]
    cited = [("evidence", " ".join(proposal.evidence))] if proposal.evidence else []
    return tag("call", [*pairs, *cited], proposal.args)


def unanswered(proposal: Proposal) -> str:
    """In place of the result of a call that has none."""
    return tag("unanswered", [("call", proposal.call_id)], UNANSWERED)


def about(seen: SeenObservation) -> str:
    """What an observation tied to no call that is shown is about, on the line before it; "" where nothing is known."""
    if not seen.call_id and not seen.args:
        return ""
    pairs = [*([("call", seen.call_id)] if seen.call_id else []), ("tool", seen.source)]
    return f"{tag('about', pairs, seen.args)}\n"


def _policy(seen: SeenObservation) -> list[tuple[str, object]]:
    """Document, version and section of the passages in a policy observation, each distinct value once."""
    content = seen.content if isinstance(seen.content, dict) else {}
    passages = content.get("passages")
    sources = [p for p in passages if isinstance(p, dict)] if isinstance(passages, list) else []
    found: list[tuple[str, object]] = []
    for name in _POLICY_FIELDS:
        values = [seen.meta[name]] if name in seen.meta else [p[name] for p in sources if name in p]
        if values:
            found.append((name, ", ".join(dict.fromkeys(str(v) for v in values))))
    return found


def _attributes(pairs: Pairs) -> str:
    return "".join(f' {name}="{html.escape(visible(str(value)), quote=True)}"' for name, value in pairs)


def inert_json(value: object) -> str:
    """One line of JSON with sorted keys in which markup, line separators and invisible characters are escapes."""
    return _DOUBTFUL.sub(_inert_match, _encode(value))


def _inert_match(found: re.Match[str]) -> str:
    return _inert(found.group())


@lru_cache(maxsize=4096)
def _inert(char: str) -> str:
    if char in "<>&" or (unicodedata.category(char) in INVISIBLE and char not in JOINERS):
        units = char.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
    return char


def _time(moment: datetime) -> str:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
