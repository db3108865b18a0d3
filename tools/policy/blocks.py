"""A Markdown text as headings and blocks in their order, each as it stands in the file; and its notes by their names.

Pure text in, pure values out. A note's text (a footnote, the definition of a link) belongs to whatever refers to it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.token import Token

from tools.policy import sentences

# Blocks alone are read: inside a block the source is kept as it is, so nothing there needs to be parsed.
PARSER = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])
MAX_CELLS = 100_000
"""Of all tables of a text. The parser completes each short row to its table's width: kilobytes become gigabytes."""
FOOTNOTE = re.compile(r"^ {0,3}\[\^([^\]\s]{1,60})\]:", re.M)
MARK = re.compile(r" {0,3}(\\\*{1,3}|[†‡]{1,3}|[¹²³⁴⁵⁶⁷⁸⁹⁰]{1,3}|<sup>[^<\n]{1,8}</sup>)")
LABEL = re.compile(r"\[([^\[\]\n]{1,200})\]")
DEFINITION = re.compile(r"^ {0,3}\[([^\[\]\n]{1,200})\]:[ \t]*(\S*)", re.M)
MARKS = re.compile(r"\\\*{1,3}|[†‡]{1,3}|[¹²³⁴⁵⁶⁷⁸⁹⁰]{1,3}|<sup>[^<\n]{1,8}</sup>|(?<=[\w.,;:)])\*{1,3}(?=\s|$)")


class TooManyCells(ValueError):
    """A text whose tables have more cells than anybody writes."""


def _counted_table(state: StateBlock, begin: int, end: int, silent: bool) -> bool:
    before = len(state.tokens)
    found = table(state, begin, end, silent)
    state.env["cells"] = state.env.get("cells", 0) + (len(state.tokens) - before) // 3
    if state.env["cells"] > MAX_CELLS:
        raise TooManyCells(f"more than {MAX_CELLS} cells of tables")
    return found


PARSER.block.ruler.at("table", _counted_table, {"alt": ["paragraph", "reference"]})


@dataclass(frozen=True, kw_only=True)
class Heading:
    """`text` in one line; `source` as it stands in the file."""

    level: int
    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Block:
    """A top-level piece; `items` are the entries of an ordered list; `note` the name others refer to it by."""

    text: str
    kind: str = "paragraph"
    items: tuple[str, ...] = ()
    note: str = ""

    @property
    def numbered(self) -> bool:
        """Whether it begins a numbered clause."""
        return self.kind == "paragraph" and bool(sentences.NUMBERED.match(self.text.lstrip()))

    @property
    def stops_short(self) -> bool:
        """Whether what follows is the rest of its sentence; a table or a list of words needs no full stop."""
        return sentences.joins(self.text) or (self.kind == "paragraph" and sentences.unfinished(self.text))


def read(body: str) -> list[Heading | Block]:
    """Everything a text says, in its order. What no reader sees is left out: comments that stand alone. Raises
    TooManyCells."""
    lines = body.split("\n")
    tokens = PARSER.parse(body)
    found = sorted([*_pieces(tokens, lines), *_definitions(tokens, lines)], key=lambda pair: pair[0])
    whole: list[Heading | Block] = []
    for _, one in found:
        last = whole[-1] if whole else None
        if isinstance(one, Block) and isinstance(last, Block) and one.kind == "code_block" and last.note[:2] == "[^":
            whole[-1] = replace(last, text=f"{last.text}\n\n{one.text}")  # a footnote's further paragraphs, indented
        else:
            whole.append(one)
    return whole


def refers_to(text: str) -> set[str]:
    """The names of notes that a text may refer to."""
    names = {_label(name) for name in LABEL.findall(text)} if "[" in text else set()
    return names | {_mark(mark) for mark in MARKS.findall(text)}


def _pieces(tokens: list[Token], lines: list[str]) -> Iterator[tuple[int, Heading | Block]]:
    tops = [at for at, token in enumerate(tokens) if token.level == 0 and token.nesting >= 0 and token.map]
    for at, until in zip(tops, [*tops[1:], len(tokens)], strict=False):
        token, source = tokens[at], _source(tokens[at], lines)
        begin = (token.map or [0])[0]
        if token.type == "heading_open" and not _is_ruled_off(token, tokens[at + 1].content):
            title = " ".join(tokens[at + 1].content.split())
            yield begin, Heading(level=int(token.tag[1:]), text=title, source=source)
        elif token.type == "heading_open":
            yield from _paragraph(begin, source.rpartition("\n")[0])
        elif token.type == "paragraph_open":
            yield from _paragraph(begin, source)
        elif token.type == "ordered_list_open":
            items = [_source(t, lines) for t in tokens[at:until] if t.level == 1 and t.type == "list_item_open"]
            yield begin, Block(text=source, kind="list", items=tuple(items))
        elif token.type != "hr":
            shown = _uncommented(source).strip("\n") if token.type == "html_block" else source
            if shown.strip():
                yield begin, Block(text=shown, kind=token.type)


def _is_ruled_off(token: Token, text: str) -> bool:
    """A sentence above a line of hyphens: Markdown's rules make it a heading, and nobody meant one."""
    return token.markup == "-" and not (sentences.unfinished(text) and "\n" not in text.strip())


def _paragraph(begin: int, text: str) -> Iterator[tuple[int, Block]]:
    """One block, but each footnote in it one of its own."""
    starts = [found.start() for found in FOOTNOTE.finditer(text)]
    if not starts:
        mark = MARK.match(text)
        yield begin, Block(text=text, note=_mark(mark[1]) if mark else "")
        return
    for start, end in itertools.pairwise(sorted({0, *starts, len(text)})):
        found = FOOTNOTE.match(text, start)
        yield begin, Block(text=text[start:end].strip("\n"), note=_label(f"^{found[1]}") if found else "")


def _definitions(tokens: list[Token], lines: list[str]) -> Iterator[tuple[int, Block]]:
    """Definitions of links and one-word footnotes that stand outside every block: no token tells of them."""
    covered = {n for t in tokens if t.level == 0 and t.map for n in range(*t.map)}
    bare = [n for n, line in enumerate(lines) if n not in covered and line.strip()]
    starts = [n for n in bare if n - 1 in covered or not lines[n - 1].strip() or DEFINITION.match(lines[n])]
    for begin, until in zip(starts, [*starts[1:], len(lines)], strict=False):
        text = "\n".join(itertools.takewhile(str.strip, lines[begin:until]))
        found = DEFINITION.match(text)
        if found is None or found[2] not in ("#", "<>"):  # how comments are written as definitions of nothing
            yield begin, Block(text=text, kind="definition", note=_label(found[1]) if found else "")


def _uncommented(text: str) -> str:
    kept, at = [], 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        kept.append(text[at:begin])
        at = end + 3
    return "".join([*kept, text[at:]])


def _source(token: Token, lines: list[str]) -> str:
    begin, end = token.map or (0, 0)
    return "\n".join(lines[begin:end]).strip("\n")


def _label(name: str) -> str:
    return f"[{' '.join(name.split()).casefold()}]"


def _mark(mark: str) -> str:
    return mark.replace("\\", "")
