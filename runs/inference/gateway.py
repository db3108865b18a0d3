"""The one way to a model: a route's name and a prompt in, a turn free of provider fields out.

Never imports Django, a store, a gate, an adapter or a business credential: it holds no key but a model provider's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from agentsite import env
from runs.contracts import LLMTurnResult, Prompt
from runs.errors import ModelRefused
from runs.inference import obedient, offline, scripted
from runs.inference.dialects import BY_PROVIDER
from runs.inference.dialects.answers import tokens
from runs.inference.dialects.dialect import Asked, Fold
from runs.inference.transport import Post, Provider, exchange, goes_on, unwatched

Dialect = Callable[[str, Prompt, float, Callable[[], bool]], LLMTurnResult]


def complete(
    route: str, prompt: Prompt, *, timeout_s: float, post: Post | None = None, max_output_tokens: int | None = None,
    should_stop: Callable[[], bool] = goes_on, heard: Callable[[Fold], None] = unwatched,
) -> LLMTurnResult:  # fmt: skip
    """One model turn on `PROVIDER:MODEL`, by at most one HTTP request, which `post` makes.

    `max_output_tokens` narrows the site's own bound on a reply; `heard` is shown a stream as it comes. Raises
    ModelUnavailable (later), ModelRefused (final) or ModelInterrupted (`should_stop` said so between pieces).
    """
    provider, _, model = route.partition(":")
    within = DIALECTS.get(provider)
    if within is not None:
        return within(model, prompt, timeout_s, should_stop)
    if provider not in BY_PROVIDER or post is None:
        raise _refused("dialect_not_available", f"{provider}: no dialect for this provider, offered: {offered()}")
    settings = env.read()
    longest = min(settings.MODEL_MAX_OUTPUT_TOKENS, max_output_tokens or settings.MODEL_MAX_OUTPUT_TOKENS)
    asked = Asked(model=model, prompt=prompt, max_output_tokens=longest, stream=settings.MODEL_STREAM)
    place = Provider(
        name=provider, base_url=_base(provider), key=_key(provider), timeout_s=timeout_s, should_stop=should_stop,
        heard=heard,
    )  # fmt: skip
    return _counted(exchange(BY_PROVIDER[provider], asked, place, post), prompt)


def offered() -> str:
    """The providers a route may name, for people."""
    return ", ".join(sorted({*DIALECTS, *BY_PROVIDER}))


def speaks(provider: str) -> bool:
    return provider in DIALECTS or provider in BY_PROVIDER


def origin(route: str) -> str:
    """Scheme, host and port a route's provider is reached at, for its qualification; "" where nothing is reached."""
    base = _base(route.partition(":")[0])
    parts = urlsplit(base)
    # User name and password of a proxy are no part of an origin, and no business of a qualification row.
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower() if base else ""


def account(route: str) -> tuple[str, str] | None:
    """(dependency, account) of a route's circuit breaker: provider, and origin with a mark of the key; None: within us.

    Two routes of one provider and key share it, whatever their models: it is the account that is down or throttled.
    """
    provider = route.partition(":")[0]
    if not (at := origin(route)):
        return None
    key = _key(provider)
    mark = f"#{hashlib.sha256(key.encode()).hexdigest()[:8]}" if key else ""
    return provider.removesuffix("_xml"), at + mark


def _base(provider: str) -> str:
    if provider not in BY_PROVIDER:
        return ""
    settings = env.read()
    own = settings.OPENAI_BASE_URL if provider == "openai" else settings.ANTHROPIC_BASE_URL
    return own or BY_PROVIDER[provider].home


def _key(provider: str) -> str:
    settings = env.read()
    key = settings.OPENAI_API_KEY if provider == "openai" else settings.ANTHROPIC_API_KEY
    return key.get_secret_value() if key else ""


def _offline(model: str, prompt: Prompt, timeout_s: float, should_stop: Callable[[], bool]) -> LLMTurnResult:
    think = OFFLINE.get(model)
    if think is None:
        raise _refused("unknown_model", f"offline:{model}: the offline models are {', '.join(sorted(OFFLINE))}")
    text = think(prompt)
    return _counted(LLMTurnResult(text=text, model=model, raw=text), prompt)


def _scripted(path: str, prompt: Prompt, timeout_s: float, should_stop: Callable[[], bool]) -> LLMTurnResult:
    return _counted(scripted.answer(path, prompt, timeout_s=timeout_s, should_stop=should_stop), prompt)


def _counted(turn: LLMTurnResult, prompt: Prompt) -> LLMTurnResult:
    """What a server does not count, input or output, is counted for it: a cap holds with any server."""
    asked = turn.input_tokens or sum(tokens(message.content) for message in prompt.messages)
    return replace(turn, input_tokens=asked, output_tokens=turn.output_tokens or tokens(turn.said + turn.thinking))


def _refused(slug: str, note: str) -> ModelRefused:
    error = ModelRefused(slug)
    error.add_note(note)
    return error


# What `offline:NAME` names: the investigator for work, the obedient model for tests of attacks.
OFFLINE: dict[str, Callable[[Prompt], str]] = {offline.MODEL: offline.answer, obedient.MODEL: obedient.answer}
# Models within this process: model name, prompt, timeout in seconds and whether to stop in, one turn out.
DIALECTS: dict[str, Dialect] = {"offline": _offline, "scripted": _scripted}
