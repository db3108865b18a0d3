"""The demo's store and login: migrated, filled, kept under VAR_DIR between starts. Part of `demo`."""

from __future__ import annotations

import io
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from django.core.management import CommandError, call_command
from django.db import connection
from knox.auth import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

from runs import fleet
from runs.management import schema, staff, tenancy

TENANT = tenancy.DEFAULT_TENANT
LEAD = "lead"
CLIENT = "demo"
KEPT = "demo.json"
LOG = "demo.log"
LEDGER = "sandbox.sqlite3"
FILES = ("agentsite.sqlite3", "anchors.jsonl", "heads.jsonl", LEDGER, KEPT, LOG)
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
MAX_LOG_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Login:
    """How people and programs get in; shown in the terminal, kept in a file that only its owner reads."""

    username: str
    password: str
    token: str


def reset(folder: Path) -> None:
    """Forget what an earlier demo left in this folder. Raises CommandError while a site lives on it."""
    if schema.fault() is None and fleet.alive():
        raise CommandError(f"a site still works on {folder}: stop it, then --reset")
    connection.close()
    for name in FILES:
        for ending in ("", "-wal", "-shm", "-journal"):
            (folder / f"{name}{ending}").unlink(missing_ok=True)


def prepare() -> None:
    """The database exists, with every migration and everything a first run needs."""
    call_command("migrate", verbosity=0, interactive=False)
    call_command("bootstrap", stdout=io.StringIO())


def login(folder: Path) -> Login:
    """The demo approver's and the demo client's ways in, the same at every start on this folder."""
    known = _known(folder / KEPT)
    password = known.get("password") or _password()
    staff.put_approver(LEAD, tenant_id=TENANT, large=False, settle=False, password=password)
    token = known.get("token", "")
    if not _valid(token):
        token = staff.make_token(tenant_id=TENANT, name=CLIENT, scopes=["runs:write", "runs:read"])
    _keep(folder / KEPT, {"username": LEAD, "password": password, "token": token})
    return Login(username=LEAD, password=password, token=token)


def _known(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return {k: str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _keep(file: Path, what: dict[str, str]) -> None:
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text(json.dumps(what))


def _password() -> str:
    return "-".join("".join(secrets.choice(LETTERS) for _ in range(4)) for _ in range(3))


def _valid(token: str) -> bool:
    """Whether the token is in this database; a kept file may be older than the store beside it."""
    try:
        return bool(token) and TokenAuthentication().authenticate_credentials(token.encode()) is not None
    except AuthenticationFailed:
        return False


def open_log(folder: Path) -> Path:
    """The file that the children print into; an old one is kept while it is small."""
    file = folder / LOG
    if file.exists() and file.stat().st_size > MAX_LOG_BYTES:
        file.unlink()
    return file
