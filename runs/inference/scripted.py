"""The scripted model: turns from a JSON file, good or bad, for tests and demonstrations. Imports no Django, no zone.

The turn is chosen from the prompt alone (model calls used so far, as the snapshot layer says), so a script goes on
where it was after a crash. A file: `{"turns": [TURN, ...], "then": "repeat_last" | "offline"}`; a TURN has `text` (raw)
or `say` (a JSON value), and may have `delay_s`, `finish_reason`, `model` (answers under that name) and `error`
(`unavailable` or `refused`). `{{obs:SOURCE}}` becomes the id of the newest observation of that source.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentsite.canonical import NotStrictJson, strict_loads
from runs.contracts import LLMTurnResult, Prompt
from runs.errors import ModelInterrupted, ModelRefused, ModelUnavailable
from runs.inference import offline
from runs.inference.reading import Seen, read

MAX_DELAY_S = 120
PIECE_S = 0.1
MAX_SCRIPT_BYTES = 1024 * 1024
ABSENT = "obs_absent"
_PLACE = re.compile(r"\{\{obs:([A-Za-z0-9_.-]{1,64})\}\}")


class ScriptedTurn(BaseModel):
    """One turn of a script."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = None
    say: Any = None
    delay_s: Annotated[float, Field(ge=0, le=MAX_DELAY_S)] = 0
    finish_reason: str = "stop"
    model: str | None = None
    error: Literal["unavailable", "refused"] | None = None

    @model_validator(mode="after")
    def one_content(self) -> ScriptedTurn:
        if self.text is not None and "say" in self.model_fields_set:
            raise ValueError("a turn has text or say, not both")
        return self

    @property
    def template(self) -> str:
        if self.text is not None:
            return self.text
        return json.dumps(self.say, ensure_ascii=False) if "say" in self.model_fields_set else ""


class Script(BaseModel):
    """A whole script; `then` says what follows its last turn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    turns: Annotated[list[ScriptedTurn], Field(max_length=1000)]
    then: Literal["repeat_last", "offline"] = "repeat_last"

    @model_validator(mode="after")
    def something_follows(self) -> Script:
        if not self.turns and self.then == "repeat_last":
            raise ValueError("turns: at least one, or then: offline")
        return self


def load(path: str) -> Script:
    """The script in a file. Raises ModelRefused `script_unreadable`, whose note says what is wrong."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_SCRIPT_BYTES)
        return Script.model_validate(strict_loads(raw.decode()))
    except (OSError, UnicodeDecodeError, NotStrictJson, ValidationError) as error:
        refused = ModelRefused("script_unreadable")
        refused.add_note(f"{path}: {type(error).__name__}: {error}")
        raise refused from None


def answer(
    path: str, prompt: Prompt, *, timeout_s: float, should_stop: Callable[[], bool] = lambda: False
) -> LLMTurnResult:
    """The script's turn for this prompt, without token counts. Raises ModelUnavailable and ModelRefused as written,
    and ModelInterrupted where `should_stop` says so during a delay."""
    script, seen = load(path), read(prompt)
    number = seen.model_calls_used
    if number >= len(script.turns) and script.then == "offline":
        text = offline.answer(prompt)
        return LLMTurnResult(text=text, model=path, raw=text)
    turn = script.turns[min(number, len(script.turns) - 1)]
    _wait(turn.delay_s, timeout_s, should_stop)
    _fail(turn)
    text = _filled(turn.template, seen)
    return LLMTurnResult(text=text, model=turn.model or path, finish_reason=turn.finish_reason, raw=text)


def _wait(delay_s: float, timeout_s: float, should_stop: Callable[[], bool]) -> None:
    """As a stream that trickles: it can be cut between two pieces."""
    ends = time.monotonic() + min(delay_s, max(timeout_s, 0), MAX_DELAY_S)
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, PIECE_S))
        if should_stop():
            raise ModelInterrupted("interrupted")
    if delay_s > timeout_s:
        raise ModelUnavailable("model_timeout")


def _fail(turn: ScriptedTurn) -> None:
    if turn.error == "unavailable":
        raise ModelUnavailable("model_unavailable")
    if turn.error == "refused":
        raise ModelRefused("model_refused")


def _filled(template: str, seen: Seen) -> str:
    return _PLACE.sub(lambda place: seen.latest_id(place.group(1)) or ABSENT, template)
