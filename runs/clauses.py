"""Clauses of policy that a reply quotes: each the whole passage that was cited, word for word. A paper: no Django.

A period, a condition or an entitlement reaches a customer in no other way. A clause is left out, with the reason,
wherever it might not be what it seems; it is never shortened and never mended. Imports no clock, store or zone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from agentsite.canonical import sha256_bytes
from agentsite.text import INVISIBLE
from runs import languages, wordlists
from runs.contracts import SeenObservation
from tools import citations
from tools.contracts import Json, PassageRef

MAX_CLAUSES = 3
MAX_CHARACTERS = 800
MAX_SOURCE = 4 * MAX_CHARACTERS
MAX_SECTION = 160
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
LEADS_AWAY = frozenset({"link", "image"})
NO_PLAIN_TEXT = frozenset({
    "html_block", "html_inline", "table", "fence", "code_block", "heading", "hr", "blockquote", "s",
})  # fmt: skip
# What a parser does not take for a link, a reader may: its target is elsewhere, or of a scheme that is never safe.
LINK_LIKE = re.compile(r"\]\s*[\[(]|\b(?:javascript|data|file|mailto|tel):", re.I)
ESCAPED = re.compile(r"\\[uU][0-9a-fA-F]{4}")
MARKS = re.compile('["\u00ab\u00bb\u201c\u201d\u201e\u201f\u2033\u2036\u275d\u275e\u301d\u301e\u301f\uff02]')
_DONE = (
    "(?:refunded|approved|credited|rejected|declined|denied|issued|paid|sent|processed|made|reimbursed|completed|"
    "confirmed)"
)
# What a text may say of everybody, a customer must not read of himself where no record says it.
OF_A_CASE = re.compile(
    rf"\b(?:we|i)(?: (?:have|had|just|already|now|hereby))* {_DONE}\b"
    rf"|\byour\b[^.;]{{1,60}}\b(?:is|was|are|were|been|being) (?:\w+ ){{0,2}}{_DONE}\b"
    rf"|\b(?:refund|request|payment|claim|order)\b[^.;]{{0,40}}\b(?:has|have) (?:\w+ )?been (?:\w+ )?{_DONE}\b"
    rf"|\byou (?:have|had|were|are) (?:been |now |already )*{_DONE}\b"
    r"|\b[a-z]+_[0-9a-z]*[0-9][0-9a-z]*\b",
    re.I,
)


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One passage as it is quoted: where it stands, and its text without Markdown's marks."""

    doc: str
    version: int
    section: str
    text: str

    def wire(self) -> Json:
        return {"doc": self.doc, "version": self.version, "section": self.section, "text": self.text}

    def sentence(self) -> str:
        """Marks within the clause become single ones: what is quoted cannot end its own quotation."""
        section = f", “{_single(self.section)}”" if self.section else ""
        return f"From our policy {self.doc}, version {self.version}{section}: “{_single(self.text)}”"


@dataclass(frozen=True, kw_only=True)
class Quoted:
    """What a reply quotes; `left_out` are cited passages with the slug of why they are not."""

    clauses: tuple[Clause, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    superseded: tuple[str, ...] = ()
    """Names of those that no version in effect had at the moment of the reply."""

    def meta(self) -> Json:
        """For the reply's event; empty where nothing was cited."""
        left = [{"cited": cited, "error": why} for cited, why in self.left_out]
        gone = list(self.superseded)
        return {**({"left_out": left} if left else {}), **({"superseded": gone} if gone else {})}


NOTHING = Quoted()


class _LeftOut(Exception):
    """Why a passage is not quoted, as a slug."""


def of_wire(rows: object) -> tuple[Clause, ...]:
    """The clauses that a recorded reply quoted."""
    return tuple(Clause(**row) for row in rows) if isinstance(rows, list) else ()


def cited(observations: Sequence[SeenObservation], ids: Iterable[str]) -> dict[str, Json]:
    """By its id each single passage of a policy search among these; an observation as a whole names no clause."""
    policies = {o.obs_id: o for o in observations if o.source == citations.POLICY and o.ok and not o.erased}
    found: dict[str, Json] = {}
    for cited_id in dict.fromkeys(ids):
        obs_id, number = citations.split(cited_id)
        seen = policies.get(obs_id)
        if number is not None and seen is not None and (row := _row(seen, number)) is not None:
            found[cited_id] = row
    return found


def refs(rows: Iterable[Json]) -> tuple[PassageRef, ...]:
    """The passages, for the registry to be asked about."""
    return tuple(dict.fromkeys(_ref(row) for row in rows))


def quote(rows: dict[str, Json], superseded: Collection[str], language: str) -> Quoted:
    """The clauses of cited passages that may be quoted to somebody who writes this language, the first few.

    `superseded`: names of passages that are in no version in effect now. Slugs: not_current, not_verbatim, language,
    link, no_plain_text, hidden_character, too_long, of_a_case, too_many.
    """
    clauses: dict[Clause, None] = {}
    left_out: list[tuple[str, str]] = []
    for cited_id, row in rows.items():
        try:
            clause = _clause(row, superseded, language)
            if clause not in clauses and len(clauses) == MAX_CLAUSES:
                raise _LeftOut("too_many")
            clauses[clause] = None
        except _LeftOut as why:
            left_out.append((cited_id, str(why)))
    gone = sorted({ref.name for ref in refs(rows.values())} & set(superseded))
    return Quoted(clauses=tuple(clauses), left_out=tuple(left_out), superseded=tuple(gone))


def _row(seen: SeenObservation, number: int) -> Json | None:
    rows = seen.content.get("passages") if isinstance(seen.content, dict) else None
    row = rows[number - 1] if isinstance(rows, list) and number <= len(rows) else None
    if not isinstance(row, dict) or type(row.get("version")) is not int:
        return None
    # One that an older release recorded has no hash: nothing tells whether it is current.
    return row if all(isinstance(row.get(name), str) for name in ("doc", "section", "text", "hash")) else None


def _ref(row: Json) -> PassageRef:
    return PassageRef(
        doc=row["doc"], version=row["version"], content_hash=row["hash"], current=row.get("current") is True
    )


def _clause(row: Json, superseded: Collection[str], language: str) -> Clause:
    ref = _ref(row)
    if not ref.current or ref.name in superseded:
        raise _LeftOut("not_current")
    if sha256_bytes(row["text"].encode()) != ref.content_hash:
        raise _LeftOut("not_verbatim")  # something was taken out of it on its way here
    if len(row["text"]) > MAX_SOURCE:
        raise _LeftOut("too_long")
    text, section = plain(row["text"]), plain(row["section"].replace("\n", " "), inline=True)
    _fit(text, language)
    if len(section) > MAX_SECTION:
        raise _LeftOut("too_long")
    return Clause(doc=ref.doc, version=ref.version, section=section, text=text)


def _fit(text: str, language: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise _LeftOut("too_long")
    if not wordlists.known(language) or languages.told(text) != language:
        raise _LeftOut("language")
    if OF_A_CASE.search(text):
        raise _LeftOut("of_a_case")


# --- Markdown as plain text ------------------------------------------------------------------------------------


def plain(markdown: str, *, inline: bool = False) -> str:
    """The same words on one line; list entries keep their numbers. Raises for what has no plain text."""
    parsed = PARSER.parseInline(markdown) if inline else PARSER.parse(markdown)
    words = " ".join(_block(node) for node in SyntaxTreeNode(parsed).children)
    text = " ".join(words.split())
    if any(unicodedata.category(c) in INVISIBLE for c in words if c not in "\n\t") or ESCAPED.search(text):
        raise _LeftOut("hidden_character")
    if wordlists.ADDRESS.search(text) or LINK_LIKE.search(text):
        raise _LeftOut("link")
    return text


def _block(node: SyntaxTreeNode) -> str:
    if node.type in NO_PLAIN_TEXT:
        raise _LeftOut("no_plain_text")
    if node.type in LEADS_AWAY:
        raise _LeftOut("link")
    if node.type == "list_item":
        return f"{node.info or '-'}{node.markup if node.info else ''} {_inside(node)}"
    return _inside(node)


def _inside(node: SyntaxTreeNode) -> str:
    if node.type in ("softbreak", "hardbreak"):
        return " "
    if not node.children:
        return node.content
    within = "" if node.type in ("inline", "em", "strong") else " "
    return within.join(_block(child) for child in node.children)


def _single(text: str) -> str:
    return MARKS.sub("'", text)
