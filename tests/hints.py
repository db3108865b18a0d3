"""What waits in the in-process broker, for tests of what is delivered by hint and by sweep."""

from __future__ import annotations

from typing import Any

from celery import current_app


def thrown_away(queue: str) -> None:
    """Every message of a queue is lost, as with a broker that forgot them."""
    with current_app.connection_for_write() as link:
        channel: Any = link.default_channel
        channel.queue_declare(queue)
        channel.queue_purge(queue)
