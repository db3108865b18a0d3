"""Door: `ask`, one case from the terminal. Leaves rows like any door; does the work only where nobody else does."""

from __future__ import annotations

import secrets
import time
from typing import Any

from django.core.management.base import CommandError, CommandParser
from pydantic import ValidationError

from agentsite import clock, embedded, env, telemetry
from agentsite.refusals import Refusal
from agentsite.tenants.models import Tenant
from approvals import queue
from runs import admission, fleet, reply, store
from runs.api import serial
from runs.contracts import RunRequest
from runs.management import output, shell, tenancy
from runs.management.base import SiteCommand
from runs.management.following import Progress, rests, show_reply
from runs.models import Run

POLL_S = 0.1
LOOK_FOR_WORKERS_S = 2.0
LIMIT_S = 600
REASON = "approved from the shell with ask --approve"
BADLY_ENDED = frozenset({"escalated", "failed"})


class Command(SiteCommand):
    help = (
        "Put one customer's case to the agent and watch it in this terminal until it rests. Where no worker lives, "
        "this process does the work itself. Exit codes: 0 completed or waiting for a person, 1 escalated or failed, "
        "2 usage."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("text", metavar="TEXT", help="the customer's words")
        parser.add_argument("--customer", required=True, metavar="C", help="the customer's id")
        parser.add_argument("--order", action="append", metavar="O", help="an order it is about; may be repeated")
        parser.add_argument("--tenant", default=tenancy.DEFAULT_TENANT, help="default %(default)s")
        parser.add_argument("--approve", action="store_true", help=f"let {shell.APPROVER} approve what needs a person")
        parser.add_argument(
            "--limit", type=float, default=LIMIT_S, metavar="S", help="watch for so many seconds at most"
        )
        parser.add_argument("--json", action="store_true", help="print the run, at the end, as one line of JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        telemetry.into(env.read().VAR_DIR / "ask.jsonl")  # what happens is told below, in words
        body, request = _request(options)
        tenant = options["tenant"]
        if not Tenant.objects.filter(id=tenant).exists():
            raise CommandError(f"no tenant {tenant!r}: make it with `create_tenant` or `bootstrap`")
        with _Workers() as workers:
            run_id = _admit(tenant, body, request)
            run = self._follow(run_id, workers, options)
        self._tell(run, as_json=options["json"])
        if run.status in BADLY_ENDED:
            raise CommandError(f"the run ended as {run.status} ({run.reason})")
        if not rests(run):
            raise CommandError(f"still {run.status} after {options['limit']:g} s; it goes on where workers live")

    def _follow(self, run_id: str, workers: _Workers, options: dict[str, Any]) -> Run:
        """Watch until the run rests or the limit is over; approve once for each question where that was asked for."""
        progress = Progress(self.stdout, run_id, silent=options["json"])
        ends_at, decided = clock.monotonic() + options["limit"], {""}
        while True:
            run = progress.look()
            question = run.approval_id or ""
            if options["approve"] and run.waiting_for == "approval" and question not in decided:
                decided.add(question)
                if self._approve(run, silent=options["json"]):
                    continue
            if clock.monotonic() > ends_at or (rests(run) and not self._decided(run, options)):
                return run
            workers.help()
            time.sleep(POLL_S)

    def _decided(self, run: Run, options: dict[str, Any]) -> bool:
        """Whether the run still looks as if it waited, but its question has its answer already."""
        found = queue.latest(str(run.id)) if options["approve"] and run.waiting_for == "approval" else None
        return found is not None and found.status in ("approved", "rejected")

    def _approve(self, run: Run, *, silent: bool) -> bool:
        """Approve as the shell's own approver; False, with the reason, where that user may not."""
        asked = queue.latest(str(run.id))
        assert asked is not None, "a run that waits for an approval has one"
        try:
            done = queue.decide(asked.id, shell.approver(run.tenant_id), "approve", asked.action_hash, REASON)
        except Refusal as refusal:
            self.stderr.write(f"not approved: {refusal.title} {refusal.detail}".strip())
            return False
        if not silent:
            more = f", {done.remaining} more must agree" if done.remaining else ""
            output.say(self.stdout, f"[yellow]{shell.APPROVER} approves, because of --approve{more}[/yellow]")
        return done.remaining == 0

    def _tell(self, run: Run, *, as_json: bool) -> None:
        if as_json:
            return output.data(self.stdout, serial.run(run))
        show_reply(self.stdout, run, reply.customer_message(store.story(str(run.id))))
        if run.waiting_for:
            output.say(self.stdout, f"It waits for: {WAITS.get(run.waiting_for, run.waiting_for)}.")
        output.say(self.stdout, f"Why: manage.py why {run.request_id}")
        return None


WAITS = {
    "approval": "a person's decision in the console (`manage.py up`)",
    "reply": "the customer's answer",
    "dependency": "a system that is down; it goes on by itself where workers live",
    "refund": "the business system, which has not settled the refund yet",
    "order": "another refund on the same order",
    "staff": "staff",
}


class _Workers:
    """Somebody works: a live process on record, or the embedded worker in this one."""

    def __init__(self) -> None:
        self._own: embedded.Worker | None = None
        self._looked_at = -LOOK_FOR_WORKERS_S

    def __enter__(self) -> _Workers:
        self.help()
        return self

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.stop()

    def help(self) -> None:
        """Start the embedded worker where nobody works; a killed process counts as alive for some seconds."""
        if self._own is not None or clock.monotonic() - self._looked_at < LOOK_FOR_WORKERS_S:
            return
        self._looked_at = clock.monotonic()
        if fleet.works():
            return
        if not env.read().BROKER_URL.startswith("memory:"):
            raise CommandError("no live worker is on record: start `manage.py worker`, then ask again")
        self._own = embedded.Worker()
        self._own.start()


def _request(options: dict[str, Any]) -> tuple[dict[str, Any], RunRequest]:
    body: dict[str, Any] = {
        "request_id": f"ask-{secrets.token_hex(5)}", "goal": options["text"],
        "actor": {"customer_id": options["customer"], "channel": "shell"},
    }  # fmt: skip
    if options["order"]:
        body["order_ids"] = options["order"]
    try:
        return body, RunRequest.model_validate(body)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        words = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found)
        raise CommandError(words, returncode=2) from None


def _admit(tenant: str, body: dict[str, Any], request: RunRequest) -> str:
    try:
        made = admission.admit(
            tenant_id=tenant, created_by=f"user:{shell.asker(tenant).pk}", request=request, raw_body=body
        )
    except Refusal as refusal:
        raise CommandError(f"{refusal.title} {refusal.detail}".strip()) from None
    return made.run_id
