"""Text from outside made safe to store and to show: NFC, and nothing invisible stays invisible."""

from __future__ import annotations

import unicodedata

# Control, format (bidirectional, zero width), surrogate, private use, unassigned, line and paragraph separators.
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
KEPT = frozenset("\n\t")
FORMULA = frozenset("=+-@\uff1d\uff0b\uff0d\uff20\u2212")  # with their wide forms and the true minus
LEADING = frozenset("\t\r\n")
QUOTES = frozenset("\"'`\u2018\u2019\u201c\u201d")
JOINERS = frozenset("\u200c\u200d")  # real letters need them in Hindi and Persian, emoji too


def visible(text: str) -> str:
    """One line of text in NFC with every invisible character written out, as `\\u202e`; for action arguments."""
    if text.isascii() and text.isprintable():
        return text  # as nearly every id is
    normal = unicodedata.normalize("NFC", text)
    return "".join(c if unicodedata.category(c) not in INVISIBLE else _escape(c) for c in normal)


def storable(text: str) -> str:
    """Text any database takes: NUL, lone surrogates and other controls written out; line breaks and joiners kept."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c in KEPT or c in JOINERS or unicodedata.category(c) not in INVISIBLE else _escape(c) for c in text
    )


def has_forbidden(text: str) -> bool:
    """Whether text holds a NUL or a lone surrogate, which one database takes and another does not."""
    if text.isascii():
        return "\x00" in text
    return any(c == "\x00" or 0xD800 <= ord(c) <= 0xDFFF for c in text)


def blank(text: str) -> bool:
    """Whether nothing of a text can be seen: white space and characters without width, such as a zero-width space."""
    return all(c.isspace() or unicodedata.category(c) == "Cf" for c in text)


def cell(text: str) -> str:
    """Text for a cell of a spreadsheet: what a program would take for a formula gets an apostrophe in front (CWE-1236).

    White space, quotes and characters without width before it hide nothing: some programs drop them.
    """
    first = next((c for c in text if not (c.isspace() or c in QUOTES or unicodedata.category(c) in INVISIBLE)), "")
    return f"'{text}" if first in FORMULA or text[:1] in LEADING else text


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
