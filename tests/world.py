"""A whole loop in one process: admission, `advance`, staff and a real sandbox over HTTP; no Celery and no threads.

A test says what the scripted model answers, turn by turn, and drives the run until it rests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import F
from django.test import Client

from agentsite import dbtime, env
from agentsite.tenants.models import AgentProfile, StaffTenant
from approvals import queue
from approvals.models import Approval
from runs import admission, orchestrator, qualification, reply, store
from runs.advance import advance
from runs.contracts import Outcome, RunRequest
from runs.management import tenancy
from runs.models import Attempt, Event, Input, Observation, Run, Turn, Write
from runs.orchestrator import Send
from runs.states import TERMINAL, Status
from tests.system.business import Business, captures, order

Json = dict[str, Any]
TENANT = tenancy.DEFAULT_TENANT
GOAL = "Order 8472 was charged twice, and my refund has not arrived."
KEY = f"{TENANT}/req-8472:issue_refund:pay_9002"
ENDED = frozenset(s.value for s in TERMINAL)
PERIODS = {
    "COMMERCE_HONOURS_KEYS": "1", "COMMERCE_SETTLE_S": "0.2", "RETRY_S": "0.02", "PENDING_POLL_S": "0.02",
    "CALL_TIMEOUT_S": "10", "WRITE_TIMEOUT_S": "10", "VERIFY_FOR_S": "600", "AGENT_PASSES_PER_TASK": "50",
}  # fmt: skip
DECISIVE = ("get_payments", "get_refund_status", "search_policy")
MAY_DECIDE = ("view_approval", "decide_approval", "view_run")


# --- scripts -----------------------------------------------------------------------------------------------


def inr(amount: str) -> Json:
    return {"amount": amount, "currency": "INR"}


def reads(*tools: str, order_id: str = "8472") -> list[Json]:
    """One turn that proposes reads of an order side by side; `search_policy` asks about duplicates."""
    query = {"query": "duplicate capture refund"}
    return [{"tool": t, "args": query if t == "search_policy" else {"order_id": order_id}} for t in tools]


def refund(
    payment_id: Any = "pay_9002", amount: Any = "2000.00", *, currency: str = "INR", order_id: Any = "8472",
    reason: str = "duplicate_capture", evidence: tuple[str, ...] = DECISIVE, cited: tuple[str, ...] = (), **more: Any,
) -> Json:  # fmt: skip
    """One turn that proposes a refund, citing the newest observation of each source, and ids as they are."""
    args = {
        "order_id": order_id, "payment_id": payment_id, "amount": {"amount": amount, "currency": currency},
        "reason": reason, **more,
    }  # fmt: skip
    return {"tool": "issue_refund", "args": args, "evidence": [*(f"{{{{obs:{s}}}}}" for s in evidence), *cited]}


def final(text: str = "Thank you for your patience.") -> Json:
    return {"final": text, "evidence": []}


def gather(order_id: str = "8472") -> list[Any]:
    """The two turns of reads that S0 begins with."""
    first, second = ("get_order", "get_payments"), ("search_policy", "get_refund_status")
    return [reads(*first, order_id=order_id), reads(*second, order_id=order_id)]


def s0(*writes: Json) -> list[Any]:
    """S0: four reads in two turns, the writes, a final."""
    return [*gather(), *(writes or (refund(),)), final()]


def turn(**fields: Any) -> Json:
    """A turn in the script's own words: text, finish_reason, error, model, delay_s."""
    return {"turn": fields}


# --- a death, and a process that starts with nothing in memory -----------------------------------------------


def worker_dies(run: Run, *, after: Literal["approved", "intent", "sent", "post"]) -> None:
    """Walks a decided run up to a boundary of its write, as a worker does, and goes without another commit.

    `intent`: saved, nothing sent; `sent`: marked, no socket opened; `post`: the refund was made, its answer lost.
    """
    run_id = str(run.pk)
    claimed = store.claim(run_id)
    assert claimed is not None, "nothing is due"
    stop = Status.APPROVED if after == "approved" else Status.EXECUTING
    while (state := store.load(run_id, claimed.token)).status is not stop:
        handled = orchestrator.step(state)
        assert isinstance(handled, Outcome)
        store.checkpoint(state, handled, keep=True)
    if after in ("sent", "post"):
        assert orchestrator.step(state) == Send() and state.open_write is not None
        mark = store.mark_sent(state, state.open_write)
        assert mark is not None
        if after == "post":
            orchestrator.send(store.load(run_id, claimed.token), orchestrator.ticket(state), mark)
    past = dbtime.now() - timedelta(seconds=1)
    Run.objects.filter(pk=run.pk).update(lease_until=past)  # its lease has run out, unrenewed


def in_new_process(code: str, **environment: str) -> str:
    """What Python code prints in a process of its own, on this test's database."""
    known = {**env.child_environment(), "DATABASE_URL": _database_url(), "ALLOWED_HOSTS": "testserver", **environment}
    command = [sys.executable, "-c", "import os, django\ndjango.setup()\n" + code]
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def _database_url() -> str:
    at = {name: str(value) for name, value in connection.settings_dict.items()}
    if connection.vendor == "sqlite":
        return f"sqlite:///{at['NAME']}"
    user, password, host = (quote(at[name], safe="") for name in ("USER", "PASSWORD", "HOST"))
    return f"postgres://{user}:{password}@{host}:{at['PORT']}/{at['NAME']}"


# --- the world ---------------------------------------------------------------------------------------------


class World:
    """W0: tenant `t_acme_in`, order 8472 charged twice, a scripted model, staff, periods made short."""

    def __init__(self, sandbox: Business, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.sandbox, self.folder, self.patch = sandbox, folder, patch
        self.tenant, self.before = TENANT, list[Json]()
        self.scripts: dict[str, str] = {}
        self.heard: dict[str, set[str]] = {}
        self.people: dict[str, User] = {}
        self.may_over_refund = False
        self.settings(COMMERCE_URL=sandbox.url, ANCHOR_LOG=str(folder.parent / f"{folder.name}.anchors"), **PERIODS)
        self.begin(TENANT, before=[])

    def begin(self, tenant_id: str, *, before: list[Json] | None = None) -> None:
        """W0 for a tenant: its profile and policies, and a business system with nothing but order 8472 in it."""
        self.tenant, self.before = tenant_id, self.refunds() if before is None else before
        paid = captures("8472", "pay_9001", "pay_9002")
        self.sandbox.control("/_seed", reset=True, orders=[order("8472")], payments=paid)
        tenancy.put_tenant(tenant_id)
        tenancy.put_profile(tenant_id, tenancy.DEFAULT_PROFILE)
        tenancy.put_policies(tenant_id)

    def seed(self, *, payments: list[Json] | None = None, refunds: list[Json] | None = None, **of_order: Any) -> None:
        """Changes order 8472, its payments, its refunds."""
        self.sandbox.control(
            "/_seed", orders=[{"order_id": "8472", **of_order}], payments=payments or [], refunds=refunds or []
        )

    def settings(self, **variables: str) -> None:
        """Sets variables of the environment as a new process would read them."""
        for name, value in variables.items():
            self.patch.setenv(name, value)
        env.read.cache_clear()

    def profile(self, **changes: Any) -> None:
        """A further revision of the tenant's profile, for runs to come."""
        newest = AgentProfile.objects.filter(tenant_id=self.tenant, agent="refunds").order_by("-revision").first()
        assert newest is not None
        tenancy.put_profile(self.tenant, {**newest.document, **changes})

    def limits(self, **rule: str) -> None:
        """Changes the INR rule of `issue_refund`."""
        known = tenancy.DEFAULT_PROFILE["write_tools"]["issue_refund"]["by_currency"]["INR"]
        self.profile(write_tools={"issue_refund": {"by_currency": {"INR": {**known, **rule}}}})

    # --- running ---

    def route(self, script: list[Any]) -> str:
        """A scripted route of these turns, qualified; the last turn repeats."""
        path = self.folder / f"s{len(list(self.folder.iterdir()))}.json"
        turns = [t["turn"] if isinstance(t, dict) and "turn" in t else {"say": t} for t in script]
        path.write_text(json.dumps({"turns": turns, "then": "repeat_last"}))
        name = f"scripted:{path}"
        qualification.qualify(name, agent="refunds", reason="a test", by="tests")
        return name

    def admit(self, request_id: str = "req-8472", script: list[Any] | None = None, **changes: Any) -> Run:
        """Admits a run that nobody has advanced yet; `script` is turns, or a route that exists."""
        created_by = changes.pop("created_by", "user:0")
        body = {
            "request_id": request_id, "goal": GOAL, "actor": {"customer_id": "cust_5521"}, "order_ids": ["8472"],
            **changes,
        }  # fmt: skip
        body = {name: value for name, value in body.items() if value is not None}
        made = admission.admit(
            tenant_id=self.tenant, created_by=created_by, request=RunRequest.model_validate(body), raw_body=body
        )
        if made.new:
            self.scripts[made.run_id] = self.route(s0() if script is None else script)
        return Run.objects.get(id=made.run_id)

    def adopt(self, run_id: str, script: list[Any]) -> Run:
        """Gives a run that came in through a door its model, and drives it."""
        self.scripts[run_id] = self.route(script)
        return self.resume(Run.objects.get(id=run_id))

    def start(self, request_id: str = "req-8472", script: list[Any] | None = None, **changes: Any) -> Run:
        """Admits a run and drives it until it rests."""
        return self.resume(self.admit(request_id, script, **changes))

    def step(self, run: Run) -> Status | None:
        """One pass of the loop with this run's own model."""
        if route := self.scripts.get(str(run.pk)):
            self.settings(AGENT_MODELS=route)
        return advance(str(run.pk))

    def resume(self, run: Run, *, until: str | None = None, patience_s: float = 0.4, limit_s: float = 20) -> Run:
        """Drives a run while it is due, or due within `patience_s`; with `until`, however long that status takes."""
        deadline = time.monotonic() + limit_s
        while True:
            status = self.step(run)
            row = Run.objects.get(pk=run.pk)
            self.heard.setdefault(str(run.pk), set()).add(self.said(run))
            assert time.monotonic() < deadline, f"still {row.status} ({row.reason}), wanted {until}"
            if row.status in ENDED or row.status == until:
                assert until in (None, row.status), f"ended as {row.status} ({row.reason}), wanted {until}"
                return row
            if status is None and (until is None and not self._soon(row, patience_s)):
                return row
            if status is None:
                time.sleep(0.01)

    def _soon(self, row: Run, patience_s: float) -> bool:
        free = row.lease_token is None or (row.lease_until is not None and row.lease_until < dbtime.now())
        return free and row.due_at is not None and row.due_at < dbtime.now() + timedelta(seconds=patience_s)

    def later(self, run: Run, seconds: float) -> None:
        """So many seconds have gone by for what this run waits for: its due time, its attempts, its looks."""
        ago = timedelta(seconds=seconds)
        Run.objects.filter(pk=run.pk).update(due_at=F("due_at") - ago, status_since=F("status_since") - ago)
        Write.objects.filter(run=run).update(absent_at=F("absent_at") - ago, unknown_since=F("unknown_since") - ago)
        Attempt.objects.filter(write__run=run).update(sent_at=F("sent_at") - ago, gives_up_at=F("gives_up_at") - ago)

    # --- people ---

    def person(self, name: str = "lead_17", *, large: bool = False, **columns: Any) -> User:
        """A member of staff who may decide for the tenant."""
        if name not in self.people:
            user = User.objects.create(username=name, is_staff=True, **columns)
            may = (*MAY_DECIDE, *(("decide_large_approval",) if large else ()))
            user.user_permissions.set(Permission.objects.filter(codename__in=may))
            StaffTenant.objects.create(user=user, tenant_id=self.tenant)
            self.people[name] = user
        return self.people[name]

    def browser(self, name: str = "lead_17", **person: Any) -> Client:
        """That person's signed-in browser."""
        client = Client()
        client.force_login(self.person(name, **person))
        return client

    def approval(self, run: Run) -> Approval:
        """The newest question about a run."""
        found = queue.latest(str(run.pk))
        assert found is not None, f"{run.request_id} was never asked about; it is {self.fresh(run).status}"
        return found

    def decide(
        self, run: Run, decision: str, reason: str = "", *, by: str = "lead_17", large: bool = False
    ) -> queue.Decided:
        asked = self.approval(run)
        return queue.decide(asked.id, self.person(by, large=large), decision, asked.action_hash, reason)

    def approve(self, run: Run, *, by: str = "lead_17", large: bool = False) -> queue.Decided:
        return self.decide(run, "approve", by=by, large=large)

    def reject(self, run: Run, reason: str = "not eligible", *, by: str = "lead_17") -> queue.Decided:
        return self.decide(run, "reject", reason, by=by)

    def leave(self, run: Run, kind: str, text: str = "") -> None:
        """What a door leaves for a run: a message, a cancel, a staff act."""
        number = Input.objects.filter(run=run, kind=kind).count()
        store.append_input(str(run.pk), kind=kind, message_id=f"{kind}-{number}", text=text, by="cust_5521")

    def message(self, run: Run, text: str) -> None:
        self.leave(run, "message", text)

    def cancel(self, run: Run) -> None:
        self.leave(run, "cancel")

    # --- what is asserted ---

    def fresh(self, run: Run) -> Run:
        return Run.objects.get(pk=run.pk)

    def posts(self) -> list[tuple[str, str, str]]:
        """(payment, amount, key) of every POST of a refund the business system received."""
        return [
            (c["body"]["payment_id"], c["body"]["amount"]["amount"], c["idempotency_key"])
            for c in self.sandbox.posts()
            if c["body"] is not None  # one that was cut before it was read
        ]

    def refunds(self, payment_id: str | None = None) -> list[Json]:
        """The refunds that exist, hidden ones too."""
        return [r for r in self.sandbox.made() if payment_id in (None, r["payment_id"])]

    def transitions(self, run: Run) -> list[tuple[str, str]]:
        rows = Event.objects.filter(run=run, type="run.status").order_by("seq")
        return [(e.meta["from"], e.meta["to"]) for e in rows]

    def events(self, run: Run, kind: str) -> list[Json]:
        rows = Event.objects.filter(run=run, type=kind).order_by("seq")
        return [{**e.meta, **(e.payload or {})} for e in rows]

    def rules(self, run: Run) -> list[str]:
        """Why proposals of a run were turned down, in order."""
        seen = Observation.objects.filter(run=run, kind="denial").order_by("position")
        return [o.content.get("rule") or o.content["error"] for o in seen]

    def errors(self, run: Run) -> list[Json]:
        return [o.content for o in Observation.objects.filter(run=run, kind="error").order_by("position")]

    def writes(self, run: Run) -> list[tuple[str, str]]:
        return list(Write.objects.filter(run=run).order_by("intent_at").values_list("key", "state"))

    def said(self, run: Run) -> str:
        """What the customer may be told at this moment."""
        return reply.customer_message(store.story(str(run.pk)))

    def raw_turns(self, run: Run) -> list[str]:
        return list(Turn.objects.filter(run=run).order_by("number").values_list("raw", flat=True))
