"""What is behind the ports: which business system a tenant has, and the client that reaches a model provider.

Never imports a gate, an executor, a dispatcher or a credential.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from agentsite import env
from runs.inference.transport import Answering, WireFailed
from tools.adapters import http
from tools.backends import backend_of

__all__ = ["FAILED", "backend_of", "post_to_model"]

# What a failed exchange is to the model's side; the first class that fits counts.
FAILED: tuple[tuple[type[http.HttpError], str], ...] = (
    (http.ConnectFailed, "model_unreachable"), (http.TooSlow, "model_timeout"),
    (http.TooLarge, "model_answer_too_large"), (http.HttpError, "model_connection_lost"),
)  # fmt: skip


@contextmanager
def post_to_model(
    url: str, *, headers: Mapping[str, str], body: bytes, timeout_s: float, max_bytes: int
) -> Iterator[Answering]:
    """One POST through this process's client for models (`transport.Post`). Raises WireFailed.

    MODEL_SILENCE_S bounds the silences within a stream that has begun; all else may take the whole `timeout_s`.
    """
    try:
        with http.for_models().stream(
            "POST", url, headers=headers, body=body, timeout_s=timeout_s, silence_s=env.read().MODEL_SILENCE_S,
            max_bytes=max_bytes,
        ) as answer:  # fmt: skip
            yield Answering(
                status=answer.status, headers=answer.headers, retry_after_s=answer.retry_after_s,
                chunks=_failing_as_wire(answer.chunks),
            )  # fmt: skip
    except http.HttpError as error:
        raise _wire_failed(error) from None


def _failing_as_wire(chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except http.HttpError as error:
        raise _wire_failed(error) from None


def _wire_failed(error: http.HttpError) -> WireFailed:
    return WireFailed(next(slug for kind, slug in FAILED if isinstance(error, kind)))
