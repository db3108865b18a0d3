"""Errors of the action zone.

    ToolError
    ├── InvalidArguments    the proposal's arguments; the model may repair them
    ├── UnknownTool         no such tool in this run; the model may choose another
    ├── ReadFailed          a read gave no answer to rely on: never an empty list
    │   ├── UpstreamUnavailable   timeout, reset, 5xx, breaker open: try again later
    │   ├── BadAnswer             a 200 that is empty, cut, garbage or of another shape: try again later
    │   ├── AccessRefused         401 or 403: final until somebody mends a credential
    │   ├── NotFound              404: the thing does not exist
    │   ├── IndexBuilding         no search index is ready on this host: try again in a moment
    │   └── ReadCancelled         the run was cancelled while it was read
    ├── Refused             a write's answer that proves nothing was made: final
    └── OutcomeUnknown      a write whose effect nobody can tell yet: look it up, never guess
        └── NobodyThere           timeout, reset, 429, 5xx: an outage too
A class says whether to retry; nothing else does.
"""

from __future__ import annotations


class ToolError(Exception):
    """Base; `slug` is stable and safe to show and to store. `retry_after_s`: not before so many seconds, if known."""

    slug = "tool_error"
    retryable = False
    retry_after_s: float | None = None

    def __init__(self, message: str = "", *, slug: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message or slug or self.slug)
        self.slug = slug or self.slug
        self.retry_after_s = retry_after_s


class InvalidArguments(ToolError):
    """`field` is a dotted path into the arguments; `expected` says what would have been right."""

    slug = "invalid_arguments"

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field}: {expected}")
        self.field = field
        self.expected = expected


class UnknownTool(ToolError):
    slug = "unknown_tool"


class ReadFailed(ToolError):
    slug = "read_failed"


class UpstreamUnavailable(ReadFailed):
    slug = "upstream_unavailable"
    retryable = True


class BadAnswer(ReadFailed):
    slug = "bad_answer"
    retryable = True


class AccessRefused(ReadFailed):
    slug = "access_refused"


class NotFound(ReadFailed):
    slug = "not_found"


class IndexBuilding(ReadFailed):
    slug = "index_building"
    retryable = True


class ReadCancelled(ReadFailed):
    slug = "cancelled"


class Refused(ToolError):
    slug = "refused"


class OutcomeUnknown(ToolError):
    slug = "outcome_unknown"
    retryable = True


class NobodyThere(OutcomeUnknown):
    pass
