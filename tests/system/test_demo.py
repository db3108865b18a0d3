"""`demo` as a newcomer runs it: one command, one refund, nothing left behind. Each start is a real one."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx
import pytest

from agentsite.private.processes import HOST, children, die_with_parent, free_port, is_alive, wait_until

pytestmark = pytest.mark.own_services

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
END_S = 40.0
REPLY = (
    "We found two captured payments of 2,000.00 INR each on order 8472, which costs 2,000.00 INR. "
    "A refund of 2,000.00 INR to payment pay_9002 on order 8472 has been made and confirmed; its reference is "
)


class Demo:
    """The command in a session of its own, with an environment that holds nothing but a PATH."""

    def __init__(self, folder: Path, *args: str, port: int | None = None, **environment: str) -> None:
        self.folder, self.lines = folder, list[str]()
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "demo", "--port", str(port or free_port()), *args],
            cwd=ROOT, env={"PATH": os.environ["PATH"], "VAR_DIR": str(folder), **environment}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent(),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.kids: list[int] = []

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines += self.process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert self.left_behind() == []

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def until(self, words: str) -> str:
        """The first line with these words."""
        assert wait_until(lambda: words in self.text or self.process.poll() is not None, START_S), self.text
        self.kids = children(self.process.pid)
        assert words in self.text, self.text
        return next(line for line in self.lines if words in line)

    def ends(self, how: signal.Signals | None = None, *, group: bool = False) -> int:
        """Its exit code, after a signal where one is given."""
        if how is not None:
            (os.killpg if group else os.kill)(self.process.pid, how)
        code = self.process.wait(START_S if how is None else END_S)
        self._reader.join(10)
        return code

    def left_behind(self) -> list[int]:
        """Children that still live some seconds after their parent."""
        wait_until(lambda: not any(map(is_alive, self.kids)), 15)
        return [pid for pid in self.kids if is_alive(pid)]

    def refunds(self) -> list[tuple[str, int, str]]:
        """What the sandbox's own ledger says was refunded."""
        with sqlite3.connect(f"file:{self.folder / 'sandbox.sqlite3'}?mode=ro", uri=True) as ledger:
            rows = ledger.execute("SELECT payment_id, minor, idempotency_key FROM refunds").fetchall()
        ledger.close()
        return rows

    def login(self) -> tuple[str, str, str]:
        """The console's URL, a user and a password, as printed."""
        match = re.search(r"console +(http\S+)/admin/ +sign in as (\S+) with (\S+)", self.until("console"))
        assert match is not None
        return match[1], match[2], match[3]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as somebody:
        somebody.bind((HOST, free_port()))
        somebody.listen()
        yield int(somebody.getsockname()[1])


def approve(site: str, username: str, password: str, page: str) -> None:
    """As a person's browser does: sign in, open the page, decide what it showed."""
    with httpx.Client(base_url=site, timeout=20, trust_env=False, follow_redirects=True) as browser:
        browser.get("/admin/login/")
        form = {"username": username, "password": password, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
        signed_in = browser.post("/admin/login/", data={**form, "next": "/admin/"})
        assert signed_in.status_code == 200 and "sessionid" in browser.cookies
        shown = browser.get(page)
        assert shown.status_code == 200 and "2,000.00 INR" in shown.text and "pay_9002" in shown.text
        approval_id = page.rstrip("/").split("/")[-2]
        question = browser.get(f"/api/v1/approvals/{approval_id}").json()
        answer = browser.post(
            f"/api/v1/approvals/{approval_id}/decision",
            json={"decision": "approve", "action_hash": question["action_hash"], "reason": "charged twice"},
            headers={"X-CSRFToken": browser.cookies["csrftoken"]},
        )
        assert answer.status_code == 200, answer.text


def story_in(log: Path) -> tuple[str, str, list[tuple[str, str]]]:
    """What the log alone says of the run, on a machine without any database."""
    command = [sys.executable, "manage.py", "why", "--from-logs", str(log), "req-8472", "--json"]
    known = {"PATH": os.environ["PATH"], "VAR_DIR": str(log.parent / "none")}
    done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, timeout=START_S)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["log"]["missing"], told["log"]["doubled"], told["goal"]) == ([], 0, "not in the log")
    return told["status"], told["outcome"], [(w["payment_id"], w["state"]) for w in told["writes"]]


def test_demo_approves_by_itself_and_a_second_start_reuses_it(tmp_path: Path, taken_port: int) -> None:
    inherited = {"PORT": "80", "DATABASE_URL": "mysql://nowhere", "BROKER_URL": "nonsense"}
    with Demo(tmp_path, "--approve", port=taken_port, **inherited) as first:
        assert first.ends() == 0, first.text
        site, username, password = first.login()
        assert (username, site) == ("lead", f"http://{HOST}:{taken_port + 1}")
        assert "PORT, DATABASE_URL, BROKER_URL ignored" in first.text
        assert "“Order 8472 was charged twice, and my refund has not arrived.”" in first.text
        assert "lead signs in and approves, because of --approve" in first.text
        assert "→ completed" in first.text and "→ customer  “A refund has been proposed" in first.text
        assert REPLY in first.text and "manage.py why req-8472" in first.text
        assert first.refunds() == [("pay_9002", 200_000, "t_acme_in/req-8472:issue_refund:pay_9002")]
    kept = tmp_path / "demo.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and password in kept.read_text()
    assert story_in(tmp_path / "demo.log") == ("completed", "refunded", [("pay_9002", "confirmed")])
    with Demo(tmp_path, "--approve") as second:
        assert second.ends() == 0, second.text
        assert "req-8472 ended earlier" in second.text and REPLY in second.text
        assert second.login()[2] == password
        assert len(second.refunds()) == 1


def test_demo_waits_for_a_browser_and_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    with Demo(tmp_path) as demo:
        page = demo.until("approve in the browser:").split()[-1]
        assert demo.refunds() == []
        site, username, password = demo.login()
        assert page.startswith(f"{site}/admin/approvals/approval/apr_")
        approve(site, username, password, page)
        assert "Ctrl-C stops it" in demo.until("the site stays up at")
        assert REPLY in demo.text and len(demo.refunds()) == 1
        customer = re.search(r"customer +(http\S+/c/\S+)", demo.text)
        assert customer is not None and customer[1].startswith(f"{site}/c/")
        assert "Your refund is confirmed" in httpx.get(customer[1], trust_env=False, timeout=20).text
        assert len(demo.kids) == 2
        assert demo.ends(signal.SIGINT, group=True) == 0
        assert "Traceback" not in demo.text and demo.left_behind() == []


@pytest.mark.long
def test_demo_that_is_told_to_end_ends_its_children(tmp_path: Path) -> None:
    with Demo(tmp_path) as demo:
        demo.until("approve in the browser:")
        assert demo.ends(signal.SIGTERM) == 0
        assert "Traceback" not in demo.text and demo.left_behind() == []
    with Demo(tmp_path, "--approve", "--reset") as early:
        early.until("making the store")
        assert early.ends(signal.SIGINT) == 130
        assert "Traceback" not in early.text and early.left_behind() == []


def test_children_of_a_killed_demo_die_with_it(tmp_path: Path) -> None:
    with Demo(tmp_path) as demo:
        demo.until("approve in the browser:")
        assert len(demo.kids) == 2
        assert demo.ends(signal.SIGKILL) == -signal.SIGKILL
        assert demo.left_behind() == []


@pytest.mark.long
def test_demo_ends_with_its_sandbox_and_names_the_log(tmp_path: Path) -> None:
    with Demo(tmp_path) as demo:
        demo.until("approve in the browser:")
        sandbox = next(pid for pid in demo.kids if b"sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(sandbox, signal.SIGKILL)
        assert demo.ends() == 1
        assert "the sandbox ended by itself (exit code -9)" in demo.text and "demo.log" in demo.text
        assert "Traceback" not in demo.text and demo.left_behind() == []
