"""Cuts a Markdown policy into passages at headings and numbered clauses, and never between a clause and its condition.

Pure text in, pure values out. In doubt a text stays together (`tools.policy.sentences`); what may qualify several
clauses is repeated in each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tools.policy import blocks, sentences
from tools.policy.blocks import Block, Heading

MAX_PATH = 300
SPOKEN = ("paragraph", "list", "bullet_list_open")
MAX_LINES = 20_000
MAX_PASSAGES = 5_000
MAX_TEXT = 4_000_000
MAX_SECTION = MAX_TEXT // 4
"""Characters of all passages of one document, and of one section, what is repeated counted each time."""


class TooMuchText(ValueError):
    """A text whose passages would be too many, or too long with what each has to repeat."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A passage: the titles above it, and its text as it stands in the file."""

    path: str
    text: str


@dataclass(frozen=True, kw_only=True)
class _Title:
    """A heading above; `opening` is what its own text says of, or leaves to, the headings below it."""

    heading: Heading
    opening: tuple[str, ...] = ()


class _TooLong(Exception):
    """Clauses that repeat more of each other than a section may."""


@dataclass
class _Clauses:
    """The passages of one section as they are found: `opening` before each, what follows after those it concerns.

    `last`: how many clauses the last list has, each of which an unnumbered text after it may qualify. `series`: how
    many numbered paragraphs stand there since the last list.
    """

    opening: list[str] = field(default_factory=list)
    found: list[list[str]] = field(default_factory=list)
    last: int = 0
    series: int = 0
    size: int = 0

    def add(self, text: str) -> None:
        self._grow(len(text) + sum(map(len, self.opening)))
        self.found.append([*self.opening, text])

    def open(self, text: str) -> None:
        """What holds for each clause from here on."""
        self._grow(len(text))
        self.opening.append(text)

    def qualify(self, text: str, count: int) -> None:
        """What holds for each of the last `count` clauses."""
        self._grow(count * (len(text) + 1))
        for clause in self.found[-count:] if count else ():
            clause.append(text)

    def join(self, text: str) -> None:
        """The rest of the last clause."""
        self._grow(len(text))
        self.found[-1][-1] += "\n" + text

    def texts(self) -> list[str]:
        return ["\n\n".join(clause) for clause in self.found or [self.opening]]

    def _grow(self, by: int) -> None:
        self.size += by
        if self.size > MAX_SECTION:
            raise _TooLong


class _Shelf(list[Section]):
    """Sections, as many and as long as a document's may be. Raises TooMuchText."""

    length = 0

    def put(self, path: str, text: str) -> None:
        self.length += len(text)
        if len(self) >= MAX_PASSAGES or self.length > MAX_TEXT:
            raise TooMuchText(f"more than {MAX_PASSAGES} passages, or {MAX_TEXT} characters of them")
        self.append(Section(path=path, text=text))


def split(body: str) -> tuple[Section, ...]:
    """The passages of a Markdown text in their order; none where it has headings alone. Raises TooMuchText.

    A section without numbered clauses is one passage, however long. A numbered clause takes with it the section's
    opening text, what follows the clause unnumbered, what speaks of its whole section or of the clauses before, and
    the notes it refers to; an enumeration that completes a sentence stays whole. What a heading's own text says of
    all below it stands in each passage below it, and a heading with nothing under it is a passage itself.
    """
    if body.count("\n") >= MAX_LINES:
        raise TooMuchText(f"more than {MAX_LINES} lines")
    try:
        pieces = blocks.read(body)
    except blocks.TooManyCells as error:
        raise TooMuchText(str(error)) from None
    if not any(isinstance(piece, Block) for piece in pieces):
        return ()
    pieces, notes = _set_notes_apart(pieces)
    shelf, whole = _Shelf(), _Shelf()
    titles, own = [_Title(heading=Heading(level=0, text="", source=""))], list[Block]()
    for piece, after in zip(pieces, [*pieces[1:], None], strict=True):
        if isinstance(piece, Block):
            own.append(piece)
            continue
        # Definitions before all headings are no passage of their own.
        held = own if len(titles) == 1 and all(block.kind == "definition" for block in own) else []
        _put(shelf, titles, [] if held else own)
        titles, own = _under(titles, own, piece), held
        if piece.text and (after is None or (isinstance(after, Heading) and after.level <= piece.level)):
            own = [Block(text=piece.source, kind="heading"), *held]
    _put(shelf, titles, own)
    for section in shelf:
        whole.put(section.path, _noted(section, notes))
    return tuple(whole)


# --- headings ----------------------------------------------------------------------------------------------


def _under(titles: list[_Title], own: list[Block], heading: Heading) -> list[_Title]:
    """The titles down to a new heading."""
    if own and titles[-1].heading.level < heading.level:
        said = [b.text for one in _statements(own) if _holds_below(one, own[-1]) for b in one]
        if own[0].text in said and _completes(titles[-1].heading, own[0]):
            said.insert(0, titles[-1].heading.source)
        titles = [*titles[:-1], replace(titles[-1], opening=tuple(filter(None, said)))]
    return [*(t for t in titles if t.heading.level < heading.level), _Title(heading=heading)]


def _statements(own: list[Block]) -> list[list[Block]]:
    """Blocks with what completes or leans on them."""
    found: list[list[Block]] = []
    for block in own:
        leans = sentences.leans_back(block.text) and not _of_section(block.text)
        if found and (leans or found[-1][-1].stops_short):
            found[-1].append(block)
        else:
            found.append([block])
    return found


def _holds_below(statement: list[Block], last: Block) -> bool:
    unfinished = statement[-1] is last and last.stops_short
    return unfinished or any(b.kind != "definition" and sentences.conditions(b.text) for b in statement)


def _put(shelf: _Shelf, titles: list[_Title], own: list[Block]) -> None:
    """The passages of what stands under the last of these titles."""
    if not own:
        return
    above = [t.heading for t in titles[1:] if t.heading.source != own[0].text]
    path = " > ".join(heading.text for heading in above if heading.text)
    carried = [text for title in titles[:-1] for text in title.opening]
    if len(path) > MAX_PATH:
        path = path[: MAX_PATH - 1] + "…"
        carried = [*(heading.source for heading in above), *carried]
    elif above and _completes(above[-1], own[0]):
        carried.append(above[-1].source)
    for text in _clauses(titles[-1].heading, own):
        shelf.put(path, "\n\n".join([*carried, text]))


def _completes(heading: Heading, first: Block) -> bool:
    """Whether a heading and the text under it are one sentence."""
    small = first.kind in SPOKEN and sentences.begins_small(first.text)
    return first.kind != "heading" and (small or sentences.joins(heading.text))


# --- clauses -----------------------------------------------------------------------------------------------


def _clauses(heading: Heading, own: list[Block]) -> list[str]:
    found = _Clauses()
    numbered = [at for at, block in enumerate(own) if block.numbered or len(block.items) > 1]
    try:
        for at, (before, block) in enumerate(zip([None, *own], own, strict=False)):
            joined = before.stops_short if before else sentences.joins(heading.text)
            _take(found, block, joined=joined, ends=at > max(numbered, default=0))
    except _TooLong:  # left whole: nothing is lost, and nothing grows without bound
        return ["\n\n".join(block.text for block in own)]
    return found.texts()


def _take(found: _Clauses, block: Block, *, joined: bool, ends: bool) -> None:
    """`joined`: the block is the rest of the sentence before it. `ends`: no numbered clause follows it, so that what it
    says on which condition may be meant of each clause before it, as it is below a list."""
    free = not joined and not sentences.leans_back(block.items[0] if block.items else block.text)
    if free and len(block.items) > 1:
        _take_items(found, block.items)
    elif not joined and _of_section(block.text):
        found.qualify(block.text, len(found.found))
        found.open(block.text)
    elif free and block.numbered and not sentences.speaks_of_all_before(block.text):
        found.add(block.text)
        found.last = 1
        found.series += 1
    elif not found.found:
        found.open(block.text)
    else:
        of_all = not joined and sentences.speaks_of_all_before(block.text)
        of_series = free and ends and sentences.conditions(block.text)
        last = max(found.last, found.series) if of_series else found.last
        found.qualify(block.text, len(found.found) if of_all else last)


def _take_items(found: _Clauses, items: tuple[str, ...]) -> None:
    found.last = found.series = 0
    for before, item in zip(("", *items), items, strict=False):
        if found.last and sentences.unfinished(before):
            found.join(item)
        elif found.last and _of_section(item):
            found.qualify(item, len(found.found))
            found.open(item)
        elif found.last and sentences.speaks_of_all_before(item):
            found.qualify(item, found.last)
        elif found.last and sentences.leans_back(item):
            found.join(item)
        else:
            found.add(item)
            found.last += 1


def _of_section(text: str) -> bool:
    return sentences.speaks_of_its_section(text) and not sentences.begins_small(text)


# --- notes -------------------------------------------------------------------------------------------------


def _set_notes_apart(pieces: list[Heading | Block]) -> tuple[list[Heading | Block], dict[str, str]]:
    """The pieces without the notes that something refers to, and these by their names; the others stay in place."""
    named = {piece.note for piece in pieces if isinstance(piece, Block) and piece.note}
    used = set[str]()
    for piece in pieces:
        own = piece.note if isinstance(piece, Block) else ""
        used |= (blocks.refers_to(piece.text) & named) - {own}
    notes: dict[str, str] = {}
    rest: list[Heading | Block] = []
    for piece in pieces:
        if isinstance(piece, Block) and piece.note in used:
            notes[piece.note] = "\n\n".join(filter(None, [notes.get(piece.note, ""), piece.text]))
        else:
            rest.append(piece)
    return rest, notes


def _noted(section: Section, notes: dict[str, str]) -> str:
    """A passage's text and after it the notes that it, or a note of its own, refers to."""
    if not notes:
        return section.text
    added: dict[str, str] = {}
    text = f"{section.path}\n{section.text}"
    while new := [name for name in sorted(blocks.refers_to(text) & notes.keys()) if name not in added]:
        added |= {name: notes[name] for name in new}
        text = "\n".join(notes[name] for name in new)
    return "\n\n".join([section.text, *added.values()])
