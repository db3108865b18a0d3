"""The Celery application: hints only. The reasons of those that matter stand in `docs/architecture.md`."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, ClassVar, Self

from celery import Celery
from celery.app.amqp import AMQP
from celery.signals import setup_logging, worker_ready, worker_shutdown
from kombu import Connection, Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")

from agentsite import env, queues

REDIS_OPTIONS: dict[str, Any] = {
    "health_check_interval": 5,
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "retry_on_timeout": False,
    "visibility_timeout": 120,
    "unacked_restore_interval": 10,
    "unacked_restore_throttle": 1,
    "max_connections": 64,
    "global_keyprefix": "agentsite:",
}
PUBLISH_TIMEOUT_S = 1
"""Shorter than a consumer's: whoever publishes may be answering somebody, and a lost hint costs seconds only."""


def _transport_options(broker: str) -> dict[str, Any]:
    if broker.startswith("memory"):
        return {"polling_interval": 0.02}
    return REDIS_OPTIONS if broker.startswith("redis") else {}


def _configuration() -> dict[str, Any]:
    broker = env.read().BROKER_URL
    return {
        "broker_url": broker,
        "broker_transport_options": _transport_options(broker),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_pool_limit": 10,
        "broker_pool_acquire_timeout": PUBLISH_TIMEOUT_S,
        "task_publish_retry": True,
        "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0, "interval_max": 0.2},
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_retry_on_worker_lost": False,
        "task_acks_on_failure_or_timeout": True,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_eta_task_limit": 100,
        "worker_enable_prefetch_count_reduction": False,
        "worker_soft_shutdown_timeout": 20,
        "worker_enable_soft_shutdown_on_idle": True,
        "worker_max_tasks_per_child": 1000,
        "worker_max_memory_per_child": 300_000,
        "worker_proc_alive_timeout": 30,
        "task_ignore_result": True,
        "result_backend": None,
        "task_serializer": "json",
        "accept_content": ["json"],
        "timezone": "UTC",
        "enable_utc": True,
        "task_create_missing_queues": False,
        "task_queues": [Queue(name) for name in queues.ALL],
        "task_default_queue": queues.MAINTENANCE,
        # Three messages a task that nobody hears where no Flower runs; one that does asks for them every five seconds.
        "worker_send_task_events": False,
        "task_send_sent_event": not broker.startswith("memory"),
        "event_queue_expires": 60,
        "event_queue_ttl": 5,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "beat_max_loop_interval": 5,
        "beat_schedule": {
            "sweep": {
                "task": queues.SWEEP_TASK,
                "schedule": 5.0,
                "options": {"queue": queues.MAINTENANCE, "expires": 10},
            }
        },
    }


@lru_cache(maxsize=1)
def _lasting() -> type[Any]:
    """kombu's transport for Redis, whose channels keep a client as long as the pool of connections behind it.

    It makes one for each command else, which costs more than the command: a publish and an event take half as long.
    """
    from kombu.transport import redis  # only where that is the broker

    theirs: Any = redis.Channel

    class Channel(redis.Channel):
        kept: Any = None

        def _create_client(self, asynchronous: bool = False) -> Any:
            if asynchronous:  # those hold a connection of their own
                return theirs._create_client(self, asynchronous)
            if self.kept is None or self.kept.connection_pool is not self.pool:
                self.kept = theirs._create_client(self)
            return self.kept

    return type("Transport", (redis.Transport,), {"Channel": Channel})


class Link(Connection):
    """Asks for a broker that is away every two seconds at most: kombu's own pause grows to thirty."""

    def get_transport_cls(self) -> type[Any]:
        given: type[Any] = super().get_transport_cls()
        return _lasting() if given.__module__ == "kombu.transport.redis" else given

    def ensure_connection(self, *args: Any, **more: Any) -> Self:
        return super().ensure_connection(
            *args, **{"interval_start": 0.5, "interval_step": 0.5, "interval_max": 2, **more}
        )


class Amqp(AMQP):
    Connection = Link


class Hints(Celery):
    """Publishes with a patience of its own; a broker that takes bytes and says nothing must not hold up a request."""

    builtin_fixups: ClassVar[set[str]] = {"agentsite.fixup:fixup"}  # type: ignore[misc]

    def connection_for_write(self, url: str | None = None, **more: Any) -> Connection:
        if env.read().BROKER_URL.startswith("redis"):
            given = more.get("transport_options") or {}
            more["transport_options"] = {"socket_timeout": PUBLISH_TIMEOUT_S, **given}
        return super().connection_for_write(url, **more)


app = Hints("agentsite", amqp="agentsite.celery:Amqp")
app.conf.update(_configuration())
app.autodiscover_tasks(["runs", "approvals"])


@setup_logging.connect
def _keep_our_logging(**_: object) -> None:
    """Celery would replace the one log configuration that web and workers share."""


_sweeper: list[Any] = []


@worker_ready.connect
def _start_sweeper(**_: object) -> None:
    """In the worker's parent, after any fork: the sweeper must depend on no broker, no beat and no task."""
    from runs import sweeper

    if env.read().BROKER_URL.startswith("memory"):
        return  # the embedded process starts its own
    thread = sweeper.Thread(kind="worker", queue_names=env.read().WORKER_QUEUES)
    _sweeper.append(thread)
    thread.start()


@worker_shutdown.connect
def _stop_sweeper(**_: object) -> None:
    for thread in _sweeper:
        thread.stop()
        thread.join(timeout=5)
