"""Cuts a Markdown policy into passages at headings and numbered clauses, and never between a clause and its condition.

Pure text in, pure values out; imports nothing of ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

MAX_PATH = 300
NUMBERED = re.compile(
    r"(?:\*\*|__)?(?:\(?\d{1,3}[.)]|\(?\d{1,3}(?:\.\d{1,3})+[.)]?|§+\s?\d[\d.]*|\(?[a-z]\)|(?:Clause|Section)\s\d[\d.]*:?)\s",
    re.I,
)
PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A passage: the titles above it, and its text as it stands in the file."""

    path: str
    text: str


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A top-level piece of a section; `items` are the entries of an ordered list, `begins` a numbered clause."""

    text: str
    items: tuple[str, ...] = ()
    begins: bool = False

    @property
    def opens(self) -> bool:
        """Whether what follows is the rest of its sentence."""
        return self.text.rstrip().rstrip("*_").endswith(":")


@dataclass(frozen=True, kw_only=True)
class _Title:
    """A heading; `opening` is the beginning of a sentence that its own text leaves to the headings below it."""

    level: int
    text: str
    opening: tuple[str, ...] = ()


def split(body: str) -> tuple[Section, ...]:
    """The passages of a Markdown text in their order.

    A section without numbered clauses is one passage, however long. A numbered clause takes with it the section's
    opening text and what follows the clause unnumbered; an enumeration that completes a sentence stays whole.
    """
    lines = body.split("\n")
    titles: list[_Title] = [_Title(level=0, text="")]
    blocks: list[_Block] = []
    sections: list[Section] = []
    for node in SyntaxTreeNode(PARSER.parse(body)).children:
        if node.type == "heading":
            sections += _sections(titles, blocks)
            titles, blocks = _under(titles, blocks, node), []
        elif node.map and not (node.type == "html_block" and node.content.lstrip().startswith("<!--")):
            blocks.append(_block(node, lines))
    return (*sections, *_sections(titles, blocks))


def _sections(titles: list[_Title], blocks: list[_Block]) -> list[Section]:
    if not blocks:
        return []
    path = " > ".join(t.text for t in titles if t.text)[:MAX_PATH]
    carried = [text for title in titles[:-1] for text in title.opening]
    return [Section(path=path, text="\n\n".join([*carried, text])) for text in _passages(blocks)]


def _under(titles: list[_Title], blocks: list[_Block], node: SyntaxTreeNode) -> list[_Title]:
    """The titles down to a new heading."""
    if blocks and blocks[-1].opens:
        titles = [*titles[:-1], replace(titles[-1], opening=(blocks[-1].text,))]
    level = int(node.tag[1:])
    text = " ".join(child.content for child in node.children).strip()
    return [*(t for t in titles if t.level < level), _Title(level=level, text=text)]


def _block(node: SyntaxTreeNode, lines: list[str]) -> _Block:
    text = _source(node, lines)
    if node.type == "ordered_list":
        return _Block(text=text, items=tuple(_source(item, lines) for item in node.children))
    return _Block(text=text, begins=node.type == "paragraph" and bool(NUMBERED.match(text)))


def _source(node: SyntaxTreeNode, lines: list[str]) -> str:
    begin, end = node.map or (0, 0)
    return "\n".join(lines[begin:end]).strip("\n")


def _passages(blocks: list[_Block]) -> list[str]:
    opening: list[str] = []
    clauses: list[list[str]] = []
    last: int = 0
    for before, block in zip((None, *blocks), blocks, strict=False):
        completes = before is not None and before.opens
        if not completes and (block.begins or len(block.items) > 1):
            last = len(block.items) or 1
            clauses += [[text] for text in block.items or (block.text,)]
        elif clauses:
            # What follows a list of clauses may qualify each of them.
            for clause in clauses[-last:]:
                clause.append(block.text)
        else:
            opening.append(block.text)
    if not clauses:
        return ["\n\n".join(opening)]
    return ["\n\n".join([*opening, *clause]) for clause in clauses]
