"""Door: `demo`, one refund live in this terminal: store, sandbox and site of its own, one request, one reply."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from rich.markup import escape

from agentsite import clock, env
from approvals import labels
from runs import reply, store
from runs.management import output
from runs.management.base import INTERRUPTED, SiteCommand
from runs.management.demo import ground, visits
from runs.management.demo.children import Children
from runs.management.following import ENDED, Progress, show_reply
from runs.models import Run

POLL_S = 0.15
LIMIT_S = 120.0
REVIEW = "/admin/approvals/approval/{}/change/"


class _Interrupted(BaseException):
    """Ctrl-C or SIGTERM: an orderly end, wherever we are."""


class Command(SiteCommand):
    help = (
        "Show one refund from a customer's request to a verified reply, on a store, a business system and ports of its "
        "own. Ignores PORT, DATABASE_URL and BROKER_URL. Exit codes: 0 done or stopped, 1 failed, 2 usage, "
        "130 interrupted before it was done."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--approve", action="store_true", help="let the demo approver decide; ends by itself")
        parser.add_argument("--port", type=_port, default=None, metavar="N", help="first port to try (default 8080)")
        parser.add_argument("--reset", action="store_true", help="forget what an earlier demo left under VAR_DIR")

    def handle(self, *args: Any, **options: Any) -> None:
        if not env.read().embedded:
            raise CommandError("the demo brings its own store and broker: start it as `manage.py demo`")
        before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        self._code = INTERRUPTED
        children = Children(settings.VAR_DIR)
        try:
            self._show(children, options)
        except _Interrupted:
            self._say("\nStopping …")
            raise SystemExit(self._code) from None
        except BrokenPipeError:
            _leave_quietly()
        finally:
            for number in before:
                signal.signal(number, signal.SIG_IGN)
            children.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _say(self, words: str) -> None:
        output.say(self.stdout, words)

    # --- scenes ---

    def _show(self, children: Children, options: dict[str, Any]) -> None:
        self._say("[bold]agentsite[/bold]: one refund, from a customer's request to a verified reply\n")
        login = self._prepare(children, options)
        self._code = INTERRUPTED if options["approve"] else 0  # where it stays up, being stopped is its end
        self._introduce(children, login)
        run = self._refund(children, login, approve=options["approve"])
        self._conclude(run)
        if options["approve"]:
            _judge(run)
        else:
            self._stay(children)

    def _prepare(self, children: Children, options: dict[str, Any]) -> ground.Login:
        if env.dropped():
            names = ", ".join(env.dropped())
            self._say(f"[yellow]{names} ignored: the demo brings its own store, broker and ports[/yellow]")
        self._say("[dim]  making the store, the sandbox and the site ready …[/dim]")
        if options["reset"]:
            ground.reset(settings.VAR_DIR)
        ground.prepare()
        login = ground.login(settings.VAR_DIR)
        children.start_sandbox()
        visits.seed(children.sandbox_url)
        children.start_site(options["port"], login.token)
        return login

    def _introduce(self, children: Children, login: ground.Login) -> None:
        site, sandbox = children.site_url, children.sandbox_url
        who = f"sign in as [bold]{login.username}[/bold] with [bold]{login.password}[/bold]"
        self._say(f"  console   [bold cyan]{site}/admin/[/bold cyan]   {who}")
        self._say(f"  API       {site}/api/docs/   token {login.token}")
        self._say(f"  sandbox   {sandbox}   order {visits.ORDER_ID}, {labels.value(visits.PRICE)}, was charged twice")
        self._say(f"  files     {escape(_short(settings.VAR_DIR))}   log in {escape(_short(children.log))}\n")

    def _refund(self, children: Children, login: ground.Login, *, approve: bool) -> Run:
        admitted = visits.admit(children.site_url, login.token)
        run_id = str(admitted["run_id"])
        run = Run.objects.get(id=run_id)
        self._say(f"  customer  [cyan]{admitted['customer_url']}[/cyan]   what the customer sees and may answer\n")
        if run.status in ENDED:
            self._say(f"{run.request_id} ended earlier, on {labels.moment(run.completed_at or run.updated_at)}.\n")
            return run
        return self._watch(run_id, children, login, approve=approve)

    def _watch(self, run_id: str, children: Children, login: ground.Login, *, approve: bool) -> Run:
        """Print what happens until the run has ended; the question is answered, or its page shown, once."""
        progress, ends_at, asked = Progress(self.stdout, run_id), clock.monotonic() + LIMIT_S, ""
        while True:
            children.check()
            run = progress.look()
            if run.status in ENDED:
                return run
            if run.waiting_for == "approval" and run.approval_id and run.approval_id != asked:
                asked = run.approval_id
                self._question(children.site_url, login, asked, approve=approve)
            if approve and (clock.monotonic() > ends_at or run.status == "approval_expired"):
                raise CommandError(f"{run.request_id} is still {run.status}: see {children.log}, or try --reset")
            time.sleep(POLL_S)

    def _question(self, url: str, login: ground.Login, approval_id: str, *, approve: bool) -> None:
        page = url + REVIEW.format(approval_id)
        if not approve:
            return self._say(f"\n  [bold yellow]approve in the browser:[/bold yellow] [bold cyan]{page}[/bold cyan]\n")
        self._say(f"  [yellow]{login.username} signs in and approves, because of --approve:[/yellow] {page}")
        visits.decide(url, login, approval_id)
        return None

    def _conclude(self, run: Run) -> None:
        self._say("")
        show_reply(self.stdout, run, reply.customer_message(store.story(str(run.id))))
        self._say(f"  why it happened:  [bold]{escape(_command('why', run.request_id))}[/bold]")

    def _stay(self, children: Children) -> NoReturn:
        self._say(f"  the site stays up at [bold cyan]{children.site_url}/admin/[/bold cyan]; Ctrl-C stops it")
        while True:
            children.check()
            time.sleep(POLL_S)


def _judge(run: Run) -> None:
    if run.status != "completed":
        raise CommandError(f"{run.request_id} ended as {run.status} ({run.reason}); --reset begins anew")


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65535:
        raise ValueError
    return port


def _interrupt(*_: object) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # once is enough: a second Ctrl-C must not leave a child behind
    raise _Interrupted


def _leave_quietly() -> NoReturn:
    """Whoever read our output is gone; Python must not complain about that at exit either."""
    sys.stdout = Path("/dev/null").open("w")  # noqa: SIM115 - it lives as long as the process
    raise SystemExit(1)


def _short(path: Path) -> str:
    """A path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _command(*words: str) -> str:
    """A command line of ours that works from here, on the same files."""
    given = "" if settings.VAR_DIR == env.ROOT / "var" else f"VAR_DIR={_short(settings.VAR_DIR)} "
    return f"{given}{_short(Path(sys.executable))} {_short(env.ROOT / 'manage.py')} {' '.join(words)}"
