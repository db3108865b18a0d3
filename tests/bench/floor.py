"""The floor: a bare Celery chain for refund-8472, as fast as somebody who wants nothing but the refund would write it.

    python -m tests.bench.floor REFUNDS worker      four prefork processes
    python -m tests.bench.floor REFUNDS drive       makes the tables, admits and approves

One task a step, raw psycopg, one row, a compare-and-set on its version and one appended row in the same statement,
`acks_late`. Nine commits and six messages a run: three model steps with their reads, the approval from another process,
intent and result of the write, its verification, the reply. No gate, no audit chain, no lease: nothing of ours is used.
REFUNDS is the folder where refunds are made; FLOOR_DATABASE and FLOOR_BROKER say where rows and messages are.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
from celery import Celery
from celery.signals import worker_ready
from psycopg.types.json import Jsonb

from tests.bench import driving

Json = dict[str, Any]
PROCESSES = 4
PRICE = {"amount": "2000.00", "currency": "INR"}
TABLES = """
CREATE TABLE IF NOT EXISTS floor_run (id text PRIMARY KEY, version int NOT NULL, status text NOT NULL);
CREATE TABLE IF NOT EXISTS floor_event (
    run_id text NOT NULL, version int NOT NULL, content jsonb NOT NULL, PRIMARY KEY (run_id, version)
);
CREATE INDEX IF NOT EXISTS floor_asked ON floor_run (id) WHERE status = 'awaiting_approval';
"""
ADMIT = (
    "WITH made AS (INSERT INTO floor_run VALUES (%s, 0, 'accepted') RETURNING id) "
    "INSERT INTO floor_event SELECT id, 0, %s FROM made"
)
LOAD = "SELECT version, status FROM floor_run WHERE id = %s"
OBSERVED = "SELECT content FROM floor_event WHERE run_id = %s ORDER BY version"
MOVE = (
    "WITH moved AS (UPDATE floor_run SET version = version + 1, status = %s WHERE id = %s AND version = %s "
    "RETURNING id, version) INSERT INTO floor_event SELECT id, version, %s FROM moved RETURNING version"
)
ENDED = "SELECT count(*) FROM floor_run WHERE status = 'completed'"
ASKED = "SELECT id FROM floor_run WHERE status = 'awaiting_approval'"
STATUS = "SELECT status FROM floor_run WHERE id = %s"

app = Celery("floor", broker=os.environ.get("FLOOR_BROKER", "memory://"))
app.conf.update(
    task_acks_late=True, worker_prefetch_multiplier=1, task_ignore_result=True, task_serializer="json",
    accept_content=["json"], broker_connection_retry_on_startup=True, worker_hijack_root_logger=False,
)  # fmt: skip


@worker_ready.connect
def _say_so(**_: object) -> None:
    print("ready.", flush=True)


@lru_cache(maxsize=1)
def _link(pid: int) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(os.environ["FLOOR_DATABASE"], autocommit=True)


@lru_cache(maxsize=1)
def _side(pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2)


def link() -> psycopg.Connection[tuple[Any, ...]]:
    return _link(os.getpid())


@app.task(name="floor.step")
def step(run_id: str) -> None:
    """One step by the run's status; then the next."""
    found = link().execute(LOAD, (run_id,)).fetchone()
    assert found is not None
    if STEPS[found[1]](run_id, found[0]):
        step.apply_async((run_id,))


def move(run_id: str, version: int, status: str, content: Json) -> None:
    """Compare and set, and append, in one statement that commits. Raises AssertionError where somebody was faster."""
    done = link().execute(MOVE, (status, run_id, version, Jsonb(content))).fetchone()
    assert done is not None, f"{run_id} is not at version {version}"


def model(run_id: str) -> str:
    """The prompt is made of all that was observed; the model itself takes no time."""
    told = [row[0] for row in link().execute(OBSERVED, (run_id,))]
    return json.dumps(told)


def reads(run_id: str, *tools: Callable[[str], Json]) -> list[Json]:
    return list(_side(os.getpid()).map(lambda tool: tool(run_id), tools))


def order(run_id: str) -> Json:
    return {"order_id": run_id, "customer_id": f"cust_{run_id}", "total": PRICE, "amount_due": PRICE}


def payments(run_id: str) -> Json:
    return {"payments": [{"payment_id": f"pay_{run_id}{n}", "state": "captured", "amount": PRICE} for n in "ab"]}


def policy(run_id: str) -> Json:
    return {"doc": "POL-REF-004", "version": 4, "text": "The duplicate capture is refunded in full."}


def refunds(run_id: str) -> Json:
    file = _place() / run_id
    return {"refunds": [json.loads(file.read_bytes())] if file.exists() else []}


def _first(run_id: str, version: int) -> bool:
    model(run_id)
    move(run_id, version, "gathering", {"observed": reads(run_id, order, payments)})
    return True


def _second(run_id: str, version: int) -> bool:
    model(run_id)
    move(run_id, version, "gathered", {"observed": reads(run_id, policy, refunds)})
    return True


def _third(run_id: str, version: int) -> bool:
    model(run_id)
    move(run_id, version, "awaiting_approval", {"proposed": {"payment_id": f"pay_{run_id}b", "amount": PRICE}})
    return False


def _write(run_id: str, version: int) -> bool:
    move(run_id, version, "executing", {"intent": {"key": f"{run_id}:issue_refund"}})
    handle = os.open(_place() / run_id, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(handle, json.dumps({"refund_id": f"ref_{run_id}", "amount": PRICE}).encode())
    os.close(handle)
    move(run_id, version + 1, "executed", {"result": {"refund_id": f"ref_{run_id}"}})
    return True


def _verify(run_id: str, version: int) -> bool:
    move(run_id, version, "verified", {"verified": refunds(run_id)})
    return True


def _reply(run_id: str, version: int) -> bool:
    model(run_id)
    move(run_id, version, "completed", {"reply": "Your refund was made."})
    return False


STEPS: dict[str, Callable[[str, int], bool]] = {
    "accepted": _first, "gathering": _second, "gathered": _third, "approved": _write, "executed": _verify,
    "verified": _reply,
}  # fmt: skip


def _place() -> Path:
    return Path(sys.argv[1])


class Floor:
    """The chain, admitted and decided by a row and a message each."""

    committed_at = 0.0

    def __init__(self, rows: driving.Rows) -> None:
        self._rows = rows
        link().execute(TABLES)

    def admit(self, order: str) -> None:
        link().execute(ADMIT, (order, Jsonb({"goal": f"Order {order} was charged twice."})))
        self._send(order)

    def asked(self) -> list[Any]:
        return [row[0] for row in self._rows.read(ASKED, ())]

    def approve(self, asked: Any) -> None:
        found = link().execute(LOAD, (asked,)).fetchone()
        assert found is not None
        move(asked, found[0], "approved", {"approved": "lead_17"})
        self._send(asked)

    def _send(self, run_id: str) -> None:
        self.committed_at = time.monotonic()
        step.apply_async((run_id,))

    def status(self, order: str) -> str:
        found = str(self._rows.one(STATUS, order))
        return {"awaiting_approval": "asked", "completed": "ended"}.get(found, found)

    def ended(self) -> int:
        return int(self._rows.one(ENDED))

    def judge(self, orders: list[str]) -> None:
        bad = [order for order in orders if self.status(order) != "ended" or not (_place() / order).exists()]
        if bad:
            raise driving.Lost(f"the floor did not end {bad[:5]}")


def main() -> None:
    if sys.argv[2] == "drive":
        driving.serve(Floor(driving.rows(os.environ["FLOOR_DATABASE"])), driving.own_stdout())
        return
    plain = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=WARNING"]
    app.worker_main(["worker", "--pool=prefork", f"--concurrency={PROCESSES}", *plain])


if __name__ == "__main__":
    main()
