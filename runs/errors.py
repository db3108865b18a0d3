"""Errors of the runs package.

RunError
├── Fenced            another worker holds the run now: stop, discard, change nothing
├── IntentLost        a condition of the intent transaction no longer holds; `which` says which
├── UnknownSchema     no code of ours can load this run
├── RunEnded          an input came after the end
├── TooManyFiles      a message whose files the run has no room for
└── ModelError        the model gave no usable turn
    ├── ModelUnavailable   outage, timeout, 429, 5xx, a cut or unreadable answer: later, by due time
    ├── ModelRefused       401, 400, 404: final
    │   └── ContextTooLong    the prompt does not fit this model: a smaller one may
    └── ModelInterrupted   the call was cut by us before it ended: nothing of it counts
"""

from __future__ import annotations


class RunError(Exception):
    slug = "run_error"


class Fenced(RunError):
    slug = "fenced"


class IntentLost(RunError):
    """`which` is `run`, `approval`, `input`, `paused`, `restored`, `fenced`, `shadow`, `epoch`, `order_busy`,
    `permission`, `route`, `attempts`, `tenant_hour`, `customer_day` or `key_used`."""

    slug = "intent_lost"

    def __init__(self, which: str) -> None:
        super().__init__(which)
        self.which = which


class UnknownSchema(RunError):
    slug = "schema_unknown"


class RunEnded(RunError):
    slug = "run-ended"


class TooManyFiles(RunError):
    slug = "too-many-files"


class ModelError(RunError):
    slug = "model_error"

    def __init__(self, slug: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(slug)
        self.slug = slug
        self.retry_after_s = retry_after_s
        self.input_tokens, self.output_tokens = 0, 0

    def after(self, input_tokens: int, output_tokens: int) -> None:
        """Remember what was used up to then: an answer that broke off cost its tokens all the same."""
        self.input_tokens, self.output_tokens = input_tokens, output_tokens


class ModelUnavailable(ModelError):
    pass


class ModelRefused(ModelError):
    pass


class ContextTooLong(ModelRefused):
    pass


class ModelInterrupted(ModelError):
    pass
