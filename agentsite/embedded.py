"""The embedded worker: Celery in a thread of this process over the in-process broker, and the sweeper beside it."""

from __future__ import annotations

import logging
import threading
from typing import Any

from agentsite import env, queues
from agentsite.celery import app
from runs import sweeper

THREADS = 8


class Worker:
    """A genuine Celery worker (threads pool) that installs no signal handlers: the main thread owns Ctrl-C."""

    def __init__(self, *, url: str = "", threads: int = THREADS) -> None:
        self._controller: Any = app.WorkController(
            app=app, pool_cls="threads", concurrency=threads, without_mingle=True, without_gossip=True,
            without_heartbeat=True, queues=list(queues.ALL), hostname=f"embedded@{env.read().WORKER_NAME}",
            loglevel=logging.WARNING,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._controller.start, name="celery", daemon=True)
        self._sweeper = sweeper.Thread(kind="up", queue_names=",".join(queues.ALL), url=url)

    def start(self) -> None:
        app.finalize()
        self._thread.start()
        self._sweeper.start()

    def stop(self) -> None:
        """Stop taking messages, let running passes finish for a few seconds, end the sweeper."""
        self._sweeper.stop()
        self._controller.stop()
        self._thread.join(timeout=5)
        self._sweeper.join(timeout=5)
