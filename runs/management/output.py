"""Door: how commands print: a person gets words, a program gets one JSON line. Imports nothing of ours."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import OutputWrapper
from rich.console import Console


def say(stdout: OutputWrapper, words: str) -> None:
    """A line for people, with rich's markup, plain where the output is no terminal."""
    Console(file=stdout, highlight=False, soft_wrap=True).print(words)  # type: ignore[arg-type]


def data(stdout: OutputWrapper, value: Any) -> None:
    """One line of JSON for programs."""
    stdout.write(json.dumps(value, sort_keys=True))
