"""The one way to a model: a route's name and a prompt in, a turn free of provider fields out.

Never imports Django, a store, a gate, an adapter or a business credential: it holds no key but a model provider's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from agentsite import env
from runs.contracts import LLMTurnResult, Prompt
from runs.errors import ModelRefused
from runs.inference import offline, scripted

BYTES_PER_TOKEN = 4
Dialect = Callable[[str, Prompt, float], LLMTurnResult]


def complete(route: str, prompt: Prompt, *, timeout_s: float) -> LLMTurnResult:
    """One model turn on `PROVIDER:MODEL`. Raises ModelUnavailable (later) or ModelRefused (final)."""
    provider, _, model = route.partition(":")
    dialect = DIALECTS.get(provider)
    if dialect is None:
        raise _refused("dialect_not_available", f"{provider}: no dialect for this provider, offered: {_offered()}")
    return dialect(model, prompt, timeout_s)


def origin(route: str) -> str:
    """Scheme, host and port a route's provider is reached at, for its qualification; "" where nothing is reached."""
    provider = route.partition(":")[0]
    settings = env.read()
    base = {
        "openai": settings.OPENAI_BASE_URL or "https://api.openai.com/v1",
        "anthropic": settings.ANTHROPIC_BASE_URL or "https://api.anthropic.com",
        "anthropic_xml": settings.ANTHROPIC_BASE_URL or "https://api.anthropic.com",
    }.get(provider, "")
    parts = urlsplit(base)
    # User name and password of a proxy are no part of an origin, and no business of a qualification row.
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower() if base else ""


def _offline(model: str, prompt: Prompt, timeout_s: float) -> LLMTurnResult:
    if model != offline.MODEL:
        raise _refused("unknown_model", f"offline:{model}: the offline model is {offline.MODEL}")
    text = offline.answer(prompt)
    return _counted(LLMTurnResult(text=text, model=offline.MODEL, raw=text), prompt)


def _scripted(path: str, prompt: Prompt, timeout_s: float) -> LLMTurnResult:
    return _counted(scripted.answer(path, prompt, timeout_s=timeout_s), prompt)


def _counted(turn: LLMTurnResult, prompt: Prompt) -> LLMTurnResult:
    asked = sum(_tokens(message.content) for message in prompt.messages)
    return replace(turn, input_tokens=asked, output_tokens=_tokens(turn.text))


def _tokens(text: str) -> int:
    """An estimate: four bytes a token, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def _refused(slug: str, note: str) -> ModelRefused:
    error = ModelRefused(slug)
    error.add_note(note)
    return error


def _offered() -> str:
    return ", ".join(sorted(DIALECTS))


# A provider's dialect is one more line here: model name, prompt and timeout in seconds in, one turn out.
DIALECTS: dict[str, Dialect] = {"offline": _offline, "scripted": _scripted}
