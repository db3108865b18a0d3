"""Questions to the database that several rooms word, and one statement answers. Floor: imports no room.

Rows of one statement are of one moment. Beside others a question's rows come as a JSON array: times are texts then, and
ids too, so whoever reads them takes both forms (`dbtime.moment`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import connection

from agentsite import statements

Found = TypeVar("Found")
Row = Sequence[Any]
_LISTED = {
    "postgresql": "(SELECT CAST(json_agg(json_build_array({columns})) AS text) {rest})",
    "sqlite": "(SELECT json_group_array(json_array({columns})) {rest})",
}


@dataclass(frozen=True, kw_only=True)
class Question(Generic[Found]):
    """`SELECT columns rest`, its parameters, and what its rows mean. They have no order: whoever needs one makes it."""

    columns: tuple[str, ...]
    rest: str
    params: Sequence[Any]
    read: Callable[[Sequence[Row]], Found]


def ask(question: Question[Found]) -> Found:
    """What one question finds. Raises what its `read` does."""
    with statements.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(question.columns)} {question.rest}", question.params)
        rows = cursor.fetchall()
    return question.read(rows)


def together(*questions: Question[Any]) -> list[Any]:
    """What each finds, in their order, all at one moment."""
    listed = _LISTED[connection.vendor]
    each = (listed.format(columns=", ".join(one.columns), rest=one.rest) for one in questions)
    with statements.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(each)}", [value for one in questions for value in one.params])
        texts = cursor.fetchone()
    return [one.read(json.loads(text) if text else []) for one, text in zip(questions, texts, strict=True)]
