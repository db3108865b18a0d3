"""A provider that counts tokens past all measure ends the run at its cap; no row is too narrow for what it says."""

from __future__ import annotations

import json

import pytest

from tests.integration.test_dialect_runs import admit, nothing_moved, reached
from tests.models.server import Fault
from tests.models.speaking import ANTHROPIC, OPENAI
from tests.world import World

MOST = 2**31 - 1
"""What a column of counts holds."""
HUGE = 10**12
ANSWERS = {
    OPENAI: {
        "model": "m-2026", "choices": [{"index": 0, "message": {"content": "Hm. 1"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": HUGE, "completion_tokens": HUGE, "prompt_tokens_details": {"cached_tokens": HUGE}},
    },
    ANTHROPIC: {
        "model": "m-2026", "content": [{"type": "text", "text": "Hm. 1"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": HUGE, "cache_read_input_tokens": HUGE, "cache_creation_input_tokens": HUGE,
                  "output_tokens": HUGE},
    },
}  # fmt: skip


@pytest.mark.parametrize("provider", ANSWERS)
def test_count_past_all_measure_is_kept_and_ends_the_run_at_its_cap(world: World, provider: str) -> None:
    world.profile(limits={"max_input_tokens": 10**9, "max_output_tokens": 10**9})
    prices = {"MODEL_PRICES": json.dumps({"currency": "USD", "models": {"m-2026": {"input": "1", "output": "1"}}})}
    with reached(world, provider, streamed=False, variables=prices) as server:
        server.always = Fault(raw=json.dumps(ANSWERS[provider]).encode())
        run = world.resume(admit(world))
        assert len(server.requests) == run.model_calls
    assert (run.status, run.reason) == ("escalated", "budget_exhausted")
    assert max(run.input_tokens, run.output_tokens) <= MOST
    nothing_moved(world)
