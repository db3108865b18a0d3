"""Logs and counters, every line without secrets. May not raise: a run never fails because it could not be logged."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import structlog
from prometheus_client import Counter

from agentsite import clock, redaction
from agentsite.redaction import redact as redact

NAME = "agentsite"
_logger = structlog.get_logger(NAME)
_lines = logging.getLogger(NAME)
_bound: ContextVar[Mapping[str, str]] = ContextVar("bound", default={})  # noqa: B039 - nobody changes it in place
_COUNTERS: dict[str, Counter] = {}
_IDS: dict[str, Ids] = {}
MAX_KNOWN = 20_000
"""Runs whose ids a process remembers; then it begins anew."""
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
# A customer's link opens his request to whoever reads it, so no line keeps one: paths stand in many.
_LINK = re.compile(r"/c/[A-Za-z0-9_=-]{16,}\.[A-Za-z0-9_-]{16,}")


def log(event: str, **fields: Any) -> None:
    """One structured line. Give ids and slugs, never customer text or secrets."""
    with contextlib.suppress(Exception):
        line(event, redact(fields))


@dataclass(frozen=True, kw_only=True)
class Ids:
    """What every line about a run carries beside its id."""

    trace_id: str
    tenant: str
    request_id: str


def know(run_id: str, trace_id: str, tenant: str, request_id: str) -> Ids:
    """Remember a run's ids in this process, so that nobody need ask for them."""
    if len(_IDS) >= MAX_KNOWN:
        _IDS.clear()
    return _IDS.setdefault(run_id, Ids(trace_id=trace_id, tenant=tenant, request_id=request_id))


def ids_of(run_id: str) -> Ids | None:
    """A run's ids, where this process knows them."""
    return _IDS.get(run_id)


def span_id(run_id: str, span: str) -> str:
    """16 hex digits for one span of a run: the same in whichever process says it. `span` "" is the whole run."""
    return hashlib.sha256(f"{run_id}:{span}".encode()).hexdigest()[:16]


def traceparent() -> str:
    """The W3C header of what is done inside this context, by its run and span; "" outside of any run."""
    bound = _bound.get()
    run_id, trace_id = bound.get("run_id", ""), bound.get("trace_id", "")
    if not (run_id and _TRACE_ID.fullmatch(trace_id)):
        return ""
    return f"00-{trace_id}-{span_id(run_id, bound.get('span', ''))}-01"


def line(event: str, fields: dict[str, Any]) -> None:
    """One structured line of these fields; the formatter takes secrets out of it.

    Made by hand: a run has dozens, and the chain that makes other people's lines costs five times as much.
    """
    with contextlib.suppress(Exception):  # telemetry may not raise: there is nobody to tell
        if _lines.isEnabledFor(logging.INFO):
            said = {**_bound.get(), **fields, "event": event, "level": "info", "logger": NAME, "timestamp": _moment()}
            record = logging.LogRecord(NAME, logging.INFO, "", 0, said, None, None)
            record.__dict__ |= {"_logger": _lines, "_name": "info"}  # by which the formatter knows fields
            _lines.handle(record)


def _moment() -> str:
    return clock.now().isoformat().replace("+00:00", "Z")


def count(name: str, amount: int = 1, **labels: str) -> None:
    """Add to a counter, made at first use under `agentsite_NAME_total`."""
    with contextlib.suppress(Exception):
        key = f"{name}|{','.join(sorted(labels))}"
        if key not in _COUNTERS:
            _COUNTERS[key] = Counter(f"agentsite_{name}", name.replace("_", " "), sorted(labels))
        counter = _COUNTERS[key]
        (counter.labels(**labels) if labels else counter).inc(amount)


@contextmanager
def unfailing(what: str) -> Iterator[None]:
    """For what is done beside a commit that stands: where it fails, that is counted by its name, and no more."""
    done = False
    with contextlib.suppress(Exception):
        yield
        done = True
    if not done:
        count("untold", what=what)


@contextmanager
def context(**fields: str) -> Iterator[None]:
    """Bind ids (trace_id, run_id, tenant) to every log line inside."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def _with_bound(logger: Any, method: str, event_dict: Any) -> Any:
    return {**_bound.get(), **event_dict}


def configure(log_format: str) -> dict[str, Any]:
    """Django's LOGGING: one formatter for our lines and everybody else's."""
    shared: list[Any] = [
        _with_bound,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Without it a traceback is the word true in JSON, and on a console one that shows what variables held.
    shared.append(structlog.processors.format_exc_info)
    renderer: Any = _json if log_format == "json" else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    formatter = {
        "()": ProcessorFormatter,
        "foreign_pre_chain": shared,
        "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _by_name, _rendered(renderer)],
    }
    quiet = {name: {"level": "WARNING"} for name in ("httpx", "httpcore", "celery", "amqp", "uvicorn.access")}
    quiet["kombu"] = {"level": "ERROR"}  # it warns that the in-process broker has no host name
    # Django would mail every error to ADMINS, with the request in it: nothing of a run leaves the site by mail.
    unmailed = {"handlers": [], "level": "INFO", "propagate": True}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": formatter},
        "handlers": {"stderr": {"class": "agentsite.telemetry.Lines", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
        "loggers": {**quiet, "django": unmailed},
    }


class ProcessorFormatter(structlog.stdlib.ProcessorFormatter):
    """Lines of ours go straight to what cleans and writes them; everybody else's go through the chain first."""

    def format(self, record: logging.LogRecord) -> str:
        if not (record.name == NAME and isinstance(record.msg, dict)):
            return super().format(record)
        said: Any = dict(record.msg)  # another handler may write the same line
        for process in self.processors[1:]:  # the first takes out what structlog would have put in
            said = process(record, "info", said)
        return str(said)


class Lines(logging.StreamHandler[TextIO]):
    """Where lines go: standard error, or the file that `into` named, also after somebody set logging up again."""

    file: TextIO | None = None

    def __init__(self) -> None:
        super().__init__(Lines.file)

    def handleError(self, record: logging.LogRecord) -> None:
        """A line that could not be written is counted; Python's own way shows its fields with their secrets."""
        count("lines_lost")


def into(path: Path) -> None:
    """From here on this process's lines are added to a file; where that cannot be written to, they go nowhere."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Lines.file = path.open("a", encoding="utf-8")
    except OSError:
        Lines.file = Path(os.devnull).open("a", encoding="utf-8")  # noqa: SIM115 - open for as long as the process
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Lines):
            handler.setStream(Lines.file)


_encoder = json.JSONEncoder(default=repr)


def _json(logger: Any, method: str, event_dict: Any) -> str:
    return _encoder.encode(event_dict)


def _by_name(logger: Any, method: str, event_dict: Any) -> Any:
    """What stands under a secret's name in a line's fields is replaced, whoever wrote the line."""
    with contextlib.suppress(Exception):
        return redact(event_dict)
    return event_dict


def _rendered(renderer: Any) -> Any:
    """The renderer, and no secret that this process knows in what it made, nor a customer's link: tracebacks too."""

    def render(logger: Any, method: str, event_dict: Any) -> str:
        return _LINK.sub("/c/[redacted]", redaction.text(renderer(logger, method, event_dict)))

    return render


def exception(event: str, **fields: Any) -> None:
    """The current exception with its traceback: a bug of ours."""
    with contextlib.suppress(Exception):
        _logger.exception(event, **redact(fields))
