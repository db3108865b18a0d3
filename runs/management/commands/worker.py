"""`worker`: one Celery child a queue, each without the credentials its queue does not need."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, InterfaceError, connections

from agentsite import env, queues, supervisor, telemetry
from agentsite.tenants.models import AgentProfile, Tenant
from runs import store
from runs.management.base import OUR_CHECKS
from runs.management.commands.web import refuse_missing_migrations

WRITE_TIME_LIMIT_S = 180
RESTART_S = 1.0
MODEL_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "EMBEDDINGS_API_KEY")


class Command(BaseCommand):
    help = "Run the workers: one child process a queue (WORKER_QUEUES=passes|writes|maintenance runs one alone)."
    requires_system_checks = OUR_CHECKS

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", default=None, help="instead of WORKER_QUEUES")
        parser.add_argument("--name", default=None, help="instead of WORKER_NAME")

    def handle(self, *args: Any, **options: Any) -> None:
        refuse_missing_migrations()
        store.look()
        given = env.read()
        names = (options["queues"] or given.WORKER_QUEUES).split(",")
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        _supervise(names, options["name"] or given.WORKER_NAME, ended)


def _supervise(names: list[str], worker_name: str, ended: threading.Event) -> None:
    """Keep one child a queue alive until asked to end; a child that dies is started again."""
    children: dict[str, subprocess.Popen[bytes]] = {}
    _start_missing(names, worker_name, children)
    while not ended.wait(RESTART_S):
        for queue, child in list(children.items()):
            if child.poll() is not None:
                telemetry.log("worker.child_ended", queue=queue, code=str(child.returncode))
                del children[queue]
        _start_missing(names, worker_name, children)
    supervisor.stop(list(children.values()))


def _start_missing(names: list[str], worker_name: str, children: dict[str, subprocess.Popen[bytes]]) -> None:
    """A child for every queue that has none; all wait where the database cannot say what they must not hold."""
    try:
        for queue in names:
            if queue not in children:
                children[queue] = _child(queue, worker_name)
    except (DatabaseError, InterfaceError) as error:
        telemetry.log("worker.child_waits", error=type(error).__name__)
    finally:
        connections.close_all()


def _child(queue: str, worker_name: str) -> subprocess.Popen[bytes]:
    dropped = not_needed(queue)
    telemetry.log("worker.child_starts", queue=queue, dropped=",".join(dropped))
    elsewhere = ",".join([*env.read().SECRETS_ELSEWHERE, *env.digests(*dropped)])
    environment = env.child_environment(
        WORKER_QUEUES=queue, WORKER_NAME=worker_name, SECRETS_ELSEWHERE=elsewhere, **dict.fromkeys(dropped),
        CELERY_SKIP_CHECKS="1",  # this command has made them
    )  # fmt: skip
    return supervisor.start(_command(queue, worker_name), environment)


def not_needed(queue: str) -> list[str]:
    """Names of credentials a queue's process must not hold (`write-path.md` 9)."""
    names: list[str] = []
    if queue != queues.WRITES:
        names += ["COMMERCE_WRITE_TOKEN", *_of_writes()]
    if queue != queues.PASSES:
        names += MODEL_KEYS
    return sorted(set(names))


def _of_writes() -> set[str]:
    """Variables that profiles name for the hand of a write. Of secrets none that the site or somebody's reads need,
    whatever a profile says: its own writes fail by that, not everybody's work."""
    found = [_named(tenant_id) for tenant_id in Tenant.objects.values_list("id", flat=True)]
    secrets = {variable for one in found for variable in one.secrets}
    kept = {variable for one in found for variable in one.reads} | set(env.Environment.model_fields)
    return {variable for one in found for variable in one.writes} | (secrets - kept)


class _Named(NamedTuple):
    reads: set[str]
    writes: set[str]
    secrets: set[str]


def _named(tenant_id: str) -> _Named:
    """The variables that a tenant's profile names, as far as it can be read: one broken row must keep no worker, and
    with it every other tenant, from starting."""
    row = AgentProfile.objects.filter(tenant_id=tenant_id, agent="refunds").order_by("-revision").first()
    document: Any = row.document if row is not None else None
    commerce, secrets = (_object(_object(document).get(name)) for name in ("commerce", "secrets"))
    return _Named(
        reads=_variables([commerce.get("read_token_env")]), writes=_variables([commerce.get("write_token_env")]),
        secrets=_variables(secrets.values()),
    )  # fmt: skip


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _variables(values: Iterable[Any]) -> set[str]:
    return {value for value in values if isinstance(value, str) and value}


def _command(queue: str, worker_name: str) -> list[str]:
    given = env.read()
    pool = {
        queues.PASSES: ["-P", "threads", "-c", str(given.PASSES_THREADS)],
        queues.WRITES: ["-P", "prefork", "-c", str(given.WRITES_PROCESSES), "--time-limit", str(WRITE_TIME_LIMIT_S)],
        queues.MAINTENANCE: ["-P", "threads", "-c", "8"],
    }[queue]
    return [
        sys.executable, "-m", "celery", "-A", "agentsite", "worker", "-Q", queue, *pool, "-n",
        f"{queue}-{worker_name}@%h", "--without-gossip", "--without-mingle", "-l", "WARNING",
    ]  # fmt: skip
