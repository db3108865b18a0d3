"""One call of a model, under the circuit breaker of its account (`tools.breaker`); never reads or writes a run.

An open breaker calls nobody: the next route is tried, or the run waits for as long as the breaker says.
"""

from __future__ import annotations

from agentsite import env
from runs import listening
from runs.backends import post_to_model
from runs.contracts import LLMTurnResult, ModelCall
from runs.errors import ModelError, ModelInterrupted, ModelRefused, ModelUnavailable
from runs.inference import gateway
from runs.orchestrator import spoken
from tools import breaker
from tools.errors import UpstreamUnavailable

OPEN = "breaker_open"
# A call gets what its run and the routes before it left of MODEL_TIMEOUT_S, so it hardly ever has all of it. With less
# than this share even a healthy model may have needed longer; with more, a model that said nothing is down.
ENOUGH_OF_TIMEOUT = 0.25


def complete(call: ModelCall) -> LLMTurnResult:
    """One turn on a route. Raises ModelError; `breaker_open`: nothing was called; ModelInterrupted: a door left
    something for the run meanwhile, and the call was cut."""
    account = gateway.account(call.route)
    if account is None:
        return _called(call)
    lease_s = env.read().MODEL_TIMEOUT_S + breaker.LEASE_GRACE_S
    try:
        with breaker.watched(*account, lease_s=lease_s) as watch:
            return _watched(call, watch)
    except UpstreamUnavailable as kept_back:
        raise ModelUnavailable(OPEN, retry_after_s=kept_back.retry_after_s) from None


def _called(call: ModelCall) -> LLMTurnResult:
    with listening.beside(call) as beside:
        turn = gateway.complete(
            call.route, call.prompt, timeout_s=call.timeout_s, post=post_to_model,
            max_output_tokens=call.max_output_tokens, should_stop=beside.should_stop, heard=beside.heard,
        )  # fmt: skip
    return spoken.clean(turn)


def _watched(call: ModelCall, watch: breaker.Watch) -> LLMTurnResult:
    try:
        turn = _called(call)
    except (ModelRefused, ModelInterrupted):
        watch.saw(None)  # a refusal is an answer, and what was cut had begun: somebody is there
        raise
    except ModelUnavailable as down:
        if not _too_short(down, call.timeout_s):
            watch.saw(UpstreamUnavailable(slug=down.slug, retry_after_s=down.retry_after_s))
        raise
    watch.saw(None)
    return turn


def _too_short(error: ModelError, timeout_s: float) -> bool:
    """Whether the run had so little time left that its being over says nothing of the model."""
    return error.slug == "model_timeout" and timeout_s < ENOUGH_OF_TIMEOUT * env.read().MODEL_TIMEOUT_S
