"""Logs, counters and redaction. May not raise: a run never fails because it could not be logged."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
from prometheus_client import Counter

_logger = structlog.get_logger("agentsite")
# `input_tokens` is a count: only a name that ends in one of these holds a secret.
SECRET_KEYS = re.compile(r"(token|secret|password|authorization|api_?key|cookie|credential)$", re.I)
_COUNTERS: dict[str, Counter] = {}
REDACTED = "[redacted]"


def redact(value: Any, known: tuple[str, ...] = ()) -> Any:
    """A copy with every value under a secret-looking key, and every known secret, replaced."""
    if isinstance(value, Mapping):
        return {k: REDACTED if SECRET_KEYS.search(str(k)) else redact(v, known) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redact(item, known) for item in value]
    if isinstance(value, str):
        for secret in known:
            value = value.replace(secret, REDACTED) if secret else value
    return value


def log(event: str, **fields: Any) -> None:
    """One structured line. Give ids and slugs, never customer text or secrets."""
    with contextlib.suppress(Exception):  # telemetry may not raise: there is nobody to tell
        _logger.info(event, **redact(fields))


def count(name: str, amount: int = 1, **labels: str) -> None:
    """Add to a counter, made at first use under `agentsite_NAME_total`."""
    with contextlib.suppress(Exception):
        key = f"{name}|{','.join(sorted(labels))}"
        if key not in _COUNTERS:
            _COUNTERS[key] = Counter(f"agentsite_{name}", name.replace("_", " "), sorted(labels))
        counter = _COUNTERS[key]
        (counter.labels(**labels) if labels else counter).inc(amount)


@contextmanager
def context(**fields: str) -> Iterator[None]:
    """Bind ids (trace_id, run_id, tenant) to every log line inside."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


def configure(log_format: str) -> dict[str, Any]:
    """Django's LOGGING: one formatter for our lines and everybody else's."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if log_format == "json":
        shared.append(structlog.processors.format_exc_info)  # without it a traceback is the word true
    renderer: Any = (
        structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "foreign_pre_chain": shared,
        "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    }
    quiet = {name: {"level": "WARNING"} for name in ("httpx", "httpcore", "celery", "amqp", "uvicorn.access")}
    quiet["kombu"] = {"level": "ERROR"}  # it warns that the in-process broker has no host name
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": formatter},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
        "loggers": quiet,
    }


def exception(event: str, **fields: Any) -> None:
    """The current exception with its traceback: a bug of ours."""
    with contextlib.suppress(Exception):
        _logger.exception(event, **redact(fields))
