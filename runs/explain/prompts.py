"""What a model was sent in one turn of a run: built again from the record by today's code, and compared by its hash.

Only a prompt's hash is kept. Where the rebuilt one has it, it is what was sent, byte for byte. Calls no model and no
tool, writes no row; secrets that this process knows are taken out of what it returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentsite import env, redaction, telemetry
from runs.contracts import ModelCall, Prompt
from runs.inference.dialects import BY_PROVIDER
from runs.inference.dialects.dialect import Asked
from runs.models import Run, Turn
from runs.replay.diff import Difference
from runs.replay.export import export
from runs.replay.player import model_calls
from runs.replay.record import BadRecord
from tools.contracts import Json

UNREADABLE = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What exporting rows raises that no code of ours can read."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One piece of a prompt, in order. `trusted`: the platform's own words, not somebody else's."""

    title: str
    trusted: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """A turn's prompt. `same`: by its hash what was sent; else `why` says what differs, and that may leave no `parts`.

    `request` is the body in the provider's own form, None for models that are asked in plain text. `masked`: a secret
    stood in it and is not shown.
    """

    same: bool
    why: str
    parts: tuple[Part, ...] = ()
    hash_now: str = ""
    request: Json | None = None
    masked: bool = False


def rebuilt(run: Run, turn: Turn) -> Rebuilt:
    """The prompt of a turn of this run, as far as the record and today's code tell. Never raises for what rows hold."""
    try:
        calls, stopped = model_calls(export(run))
    except BadRecord as error:
        return Rebuilt(same=False, why=f"The record can no longer be read whole: {error}.")
    except UNREADABLE as error:
        return Rebuilt(same=False, why=f"The record is not readable by today's code ({type(error).__name__}).")
    call = calls.get(turn.number)
    return Rebuilt(same=False, why=_missing(stopped)) if call is None else _shown(call, turn)


def _missing(stopped: Difference | None) -> str:
    if stopped is None:
        return "The record does not lead to this turn."
    place = f"{stopped.where}: {stopped.what}"
    return f"Today's code or settings go another way before this turn ({place}); its prompt cannot be built again."


def _shown(call: ModelCall, turn: Turn) -> Rebuilt:
    prompt, same = call.prompt, call.prompt.hash == turn.prompt_hash
    parts = tuple(_parts(prompt))
    clean = tuple(Part(title=p.title, trusted=p.trusted, text=redaction.text(p.text)) for p in parts)
    return Rebuilt(
        same=same, why="" if same else _changed(prompt, turn), parts=clean, hash_now=prompt.hash,
        request=_request(call, turn), masked=clean != parts,
    )  # fmt: skip


def _changed(prompt: Prompt, turn: Turn) -> str:
    told = [
        f"its version was {turn.prompt_version} and is now {prompt.version}" * (turn.prompt_version != prompt.version),
        "its fixed text changed" * (turn.template_hash not in ("", prompt.template_hash)),
        "the tools or their schemas changed" * (turn.tools_version != prompt.tools_hash),
    ]
    return "; ".join(filter(None, told)).capitalize()


def _parts(prompt: Prompt) -> Iterator[Part]:
    rules, _, tools = prompt.system.partition("\n\n[2] ")
    yield Part(title="Rules", trusted=True, text=rules)
    yield Part(title="Tools", trusted=True, text=f"[2] {tools}")
    yield Part(title="The customer's request", trusted=False, text=prompt.goal)
    for turn in prompt.turns:
        title = f"Turn {turn.number}: its calls and what they returned" if turn.number else "Before the first turn"
        yield Part(title=title, trusted=False, text="".join(turn.pieces))
    yield Part(title="How things stood", trusted=True, text=prompt.snapshot)


def _request(call: ModelCall, turn: Turn) -> Json | None:
    provider, _, model = turn.route.partition(":")
    dialect = BY_PROVIDER.get(provider)
    if dialect is None:
        return None
    asked = Asked(
        model=model, prompt=call.prompt, max_output_tokens=call.max_output_tokens, stream=env.read().MODEL_STREAM
    )
    body: Json = telemetry.redact(dialect.body(asked))
    return body
