"""The page of one prompt: what a model was sent, built again and compared by its hash. Part of a door."""

from __future__ import annotations

from typing import Any

from approvals import labels
from runs import explain
from runs.models import Run, Turn

VERDICTS = {
    True: ("good", "This is what was sent", "Built again from the record, it has the recorded hash, byte for byte."),
    False: (
        "wait",
        "This is not known to be what was sent",
        "Its hash differs from the recorded one: code, settings or the record have changed since.",
    ),
}


def build(run: Run, turn: Turn) -> dict[str, Any]:
    """Everything the page shows."""
    made = explain.rebuilt(run, turn)
    tone, headline, detail = VERDICTS[made.same]
    if not made.parts:
        headline, detail = "It cannot be shown", made.why
    elif made.why:
        detail = f"{detail} {made.why}."
    return {
        "run": run, "turn": turn, "made": made, "tone": tone, "headline": headline, "detail": detail,
        "numbers": Turn.objects.filter(run=run).order_by("number").values_list("number", flat=True)[:100],
        "as_request": labels.pretty(made.request) if made.request is not None else "",
    }  # fmt: skip
