"""Door: how commands print: a person gets words, a program gets one JSON line. Imports nothing of ours.

What customers, providers and models wrote is printed as `Text`, never as markup, after `visible` wrote out what is
invisible in it: no text from outside moves the cursor or colours a line.
"""

from __future__ import annotations

import io
import json
from typing import Any

from django.core.management.base import OutputWrapper
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 10_000
"""Where the output is no terminal a sentence stays on one line: it is searched more often than it is looked at."""


def show(stdout: OutputWrapper, what: RenderableType) -> None:
    """Anything rich can draw; where the output is no terminal, without blanks at the ends of lines."""
    if stdout.isatty():
        return Console(file=stdout, highlight=False).print(what)  # type: ignore[arg-type]
    drawn = io.StringIO()
    Console(file=drawn, highlight=False, width=PLAIN_WIDTH).print(what)
    stdout.write("\n".join(line.rstrip() for line in drawn.getvalue().split("\n")[:-1]))
    return stdout.flush()


def say(stdout: OutputWrapper, words: str) -> None:
    """A line for people, with rich's markup, plain where the output is no terminal."""
    Console(file=stdout, highlight=False, soft_wrap=True).print(words)  # type: ignore[arg-type]


def data(stdout: OutputWrapper, value: Any) -> None:
    """One line of JSON for programs."""
    stdout.write(json.dumps(value, sort_keys=True))


def table(*columns: str, title: str = "") -> Table:
    """A light table: a line under its head, none between rows."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, header_style="dim", overflow="fold")
    return made


def grid(*widths: int | None) -> Table:
    """Columns without a head; a width of None takes what it needs and wraps at the terminal's edge."""
    made = Table.grid(padding=(0, 2, 0, 0))
    for width in widths:
        made.add_column(width=width, overflow="fold")
    return made


def framed(stdout: OutputWrapper, words: str, *, title: str, style: str = "") -> None:
    """What everything above led to: in a frame on a terminal, as it is elsewhere."""
    if not stdout.isatty():
        stdout.write(f"{title}:\n{words}")
        return stdout.flush()
    return show(
        stdout, Panel(Text(words), title=title, title_align="left", border_style=style or "none", padding=(0, 1))
    )


def heading(words: str) -> Text:
    return Text(words, style="bold")
