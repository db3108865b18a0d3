"""Kinds of odd answers and what each becomes in every dialect, whole and streamed: the one table of tests and docs.

What a kind becomes is one of: `draft`, or the names of the proposed tools (exactly as they were said); `told: SLUG`,
the model hears that its turn counts for nothing; `later: SLUG`, the provider failed and is asked again by due time;
`final: SLUG`, it is not asked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.models import odd
from tests.models.odd import Call, Odd
from tests.models.speaking import PROVIDERS

MODES = ("json", "sse")
TYPES = {"json": "application/json", "sse": "text/event-stream; charset=utf-8"}
Becomes = str | Mapping[str, str]
Change = Callable[[str, list[str]], bytes | list[str] | None]
"""What a provider's events are made into; None where there is nothing to change."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What a server answers with under status 200."""

    body: bytes
    type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: float | None = None


Sends = Callable[[str, str], Sent | None]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`sends` gives a dialect's bytes in a mode, None where the kind does not exist there. `becomes` is one word for
    all, or words by `PROVIDER MODE`, provider, mode and `else`, the most exact first."""

    group: str
    name: str
    sends: Sends
    becomes: Becomes

    def expected(self, provider: str, mode: str) -> str:
        if isinstance(self.becomes, str):
            return self.becomes
        found = [self.becomes.get(name) for name in (f"{provider} {mode}", provider, mode, "else")]
        return next(word for word in found if word is not None)

    def cells(self) -> list[tuple[str, str]]:
        return [(p, m) for p in PROVIDERS for m in MODES if self.sends(p, m) is not None]


def said(
    group: str, name: str, becomes: Becomes, turn: Odd, *, only: tuple[str, ...] = (*PROVIDERS, *MODES),
    patch: tuple[bytes, bytes] = (b"", b""),
) -> Kind:  # fmt: skip
    """A turn of a model, in each dialect's own words; with `patch` one piece of its bytes is another."""

    def sends(provider: str, mode: str) -> Sent | None:
        if provider not in only or mode not in only:
            return None
        whole = mode == "json"
        body = odd.whole(provider, turn) if whole else odd.stream(odd.events(provider, turn))
        return Sent(body=body.replace(*patch) if patch[0] else body, type=TYPES[mode])

    return Kind(group=group, name=name, sends=sends, becomes=becomes)


def arguments(name: str, becomes: Becomes, *, finish: str = "", **call: object) -> Kind:
    made = Call(**call)  # type: ignore[arg-type]
    return said("arguments", name, becomes, Odd(calls=(made,), finish=finish))


def sent(group: str, name: str, becomes: Becomes, body: bytes, **more: object) -> Kind:
    """The same bytes from every provider, under the type of a whole answer and of a stream."""

    def sends(provider: str, mode: str) -> Sent:
        return Sent(**{"body": body, "type": TYPES[mode], **more})  # type: ignore[arg-type]

    return Kind(group=group, name=name, sends=sends, becomes=becomes)


def streamed(name: str, becomes: Becomes, change: Change, turn: Odd) -> Kind:
    """A stream of this turn with something done to its events, or to its bytes."""

    def sends(provider: str, mode: str) -> Sent | None:
        changed = change(provider, odd.events(provider, turn)) if mode == "sse" else None
        if changed is None:
            return None
        return Sent(body=changed if isinstance(changed, bytes) else odd.stream(changed), type=TYPES["sse"])

    return Kind(group="streams", name=name, sends=sends, becomes=becomes)


def outcome(kind: Kind) -> str:
    """What a kind becomes: the most frequent outcome, then the others with their places."""
    cells = kind.cells()
    words = {cell: kind.expected(*cell) for cell in cells}
    usual, *others = (word for word, _ in Counter(words.values()).most_common())
    said = [f"{_where([c for c in cells if words[c] == w], cells)}: {_word(w)}" for w in others]
    return "; ".join([_word(usual), *said])


def _word(word: str) -> str:
    verdict, _, slug = word.partition(": ")
    return f"{verdict} `{slug}`" if slug else f"`{word}`"


def _where(cells: list[tuple[str, str]], of: list[tuple[str, str]]) -> str:
    """Those cells: by mode or by provider alone where that says it all."""
    modes, providers = {m for _, m in cells}, {p for p, _ in cells}
    if cells == [c for c in of if c[1] in modes] and len(modes) == 1:
        return modes.pop()
    if cells == [c for c in of if c[0] in providers]:
        return ", ".join(sorted(providers))
    return ", ".join(f"{p} {m}" for p, m in cells)


def table(kinds: list[Kind]) -> list[str]:
    """The table as lines of Markdown, group by group, kinds of one outcome together."""
    lines: list[str] = []
    for group in dict.fromkeys(kind.group for kind in kinds):
        found: dict[str, list[str]] = {}
        for kind in kinds:
            if kind.group == group:
                found.setdefault(outcome(kind), []).append(kind.name)
        lines += ["", f"| {group} | become |", "|---|---|"]
        lines += [f"| {' · '.join(names)} | {becomes} |" for becomes, names in found.items()]
    return lines[1:]
