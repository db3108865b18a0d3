"""Runs `manage.py bench SCENARIO --json` and reads its one line."""

from __future__ import annotations

import io
import json
from typing import Any

from django.core.management import call_command


def bench(*arguments: str) -> dict[str, Any]:
    """The figures. Raises CommandError where something was lost, or nothing could be measured."""
    out = io.StringIO()
    call_command("bench", *arguments, "--json", stdout=out)
    (line,) = out.getvalue().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found
