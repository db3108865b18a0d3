"""What this process logs, into a file as a site with `LOG_FORMAT=json` writes it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from agentsite import telemetry


@contextmanager
def kept(path: Path) -> Iterator[Path]:
    """Every line of ours inside, appended to this file."""
    made = telemetry.configure("json")["formatters"]["line"]
    handler = logging.FileHandler(path)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(**{k: v for k, v in made.items() if k != "()"}))
    logger = logging.getLogger("agentsite")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield path
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        handler.close()
