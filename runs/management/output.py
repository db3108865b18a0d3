"""Door: how commands print: a person gets words, a program gets one JSON line. Imports nothing of ours.

What customers, providers and models wrote is printed as `Text`, never as markup, after `visible` wrote out what is
invisible in it: no text from outside moves the cursor or colours a line.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import OutputWrapper
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 120
"""Columns where the output is no terminal: files and pipes are read by people, too."""


def console(stdout: OutputWrapper) -> Console:
    """A console on a command's output: colours and the terminal's width there, plain lines elsewhere."""
    width = None if stdout.isatty() else PLAIN_WIDTH
    return Console(file=stdout, highlight=False, width=width)  # type: ignore[arg-type]


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
    """Columns without a head; a width of None takes what is left and wraps."""
    made = Table.grid(padding=(0, 2, 0, 0), expand=None in widths)
    for width in widths:
        made.add_column(width=width, ratio=None if width else 1, overflow="fold")
    return made


def panel(body: RenderableType, *, title: str, style: str = "") -> Panel:
    """A framed text, for what everything above led to."""
    return Panel(body, title=title, title_align="left", border_style=style or "none", padding=(0, 1))


def heading(words: str) -> Text:
    return Text(words, style="bold")
