"""What is configured, and whether it is sound: never a secret, of a URL only host, port and name. Part of `doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from kombu.exceptions import OperationalError

from agentsite import checks, env
from agentsite.celery import app
from runs.inference import gateway
from runs.management.findings import costs
from runs.management.findings.finding import Finding, fail, ok, warn

LEAST_AUDIT_CHARS = 32
CONNECT_S = 3
LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEPT = ("secret_key", "audit_key")


def examine() -> Iterator[Finding]:
    """Findings that need no database."""
    yield _set_up()
    yield _http()
    yield from _keys()
    yield _kept_files()
    yield _heads_log()
    yield _broker()
    yield from _routes()
    yield _blocked()
    yield from costs.of_routes()


def place(url: str) -> str:
    """A URL without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _set_up() -> Finding:
    given = env.read()
    kind = "embedded (SQLite, in-process broker)" if given.embedded else "full"
    return ok("set-up", f"{kind}, release {settings.RELEASE}, files in {settings.VAR_DIR}, logs as {given.LOG_FORMAT}")


def _http() -> Finding:
    given = env.read()
    where = f"{given.BIND}:{given.PORT}"
    outside = given.BIND not in LOOPBACK
    faults = [
        words for wrong, words in (
            (given.DEBUG, "DEBUG=1 shows our code to whoever makes an error"),
            ("*" in given.ALLOWED_HOSTS, "ALLOWED_HOSTS lets any host name in"),
            (outside and given.INSECURE_HTTP, "INSECURE_HTTP=1 on an address others reach"),
        ) if wrong
    ]  # fmt: skip
    return warn("http", f"{where}: {'; '.join(faults)}") if faults else ok("http", f"web and up listen on {where}")


def _keys() -> Iterator[Finding]:
    length = len(settings.SECRET_KEY)
    least = checks.LEAST_KEY_CHARS
    if length < least:
        yield warn("SECRET_KEY", f"has {length} characters: give it at least {least}")
    else:
        yield ok("SECRET_KEY", f"{length} characters")
    yield _audit_key()


def _audit_key() -> Finding:
    keys = [part.partition(":") for part in settings.AUDIT_KEY.split(",")]
    names = ", ".join(name for name, _, _ in keys)
    if any(not name or not secret for name, _, secret in keys):
        return fail("AUDIT_KEY", "expected KEYID:SECRET[,KEYID:SECRET…]: the audit chain cannot be signed")
    if len(keys[0][2]) < LEAST_AUDIT_CHARS:
        return warn("AUDIT_KEY", f"the signing key {keys[0][0]} has fewer than {LEAST_AUDIT_CHARS} characters")
    return ok("AUDIT_KEY", f"signs with {keys[0][0]}; verifies {names}")


def _kept_files() -> Finding:
    folder: Path = settings.VAR_DIR
    open_to_others = [name for name in KEPT if (folder / name).exists() and (folder / name).stat().st_mode & 0o077]
    if open_to_others:
        return warn("kept secrets", f"others can read {', '.join(open_to_others)} in {folder}: chmod 600")
    return ok("kept secrets", "no secret file is open to others")


def _heads_log() -> Finding:
    log = env.read().heads_log
    there = next(place for place in (log, *log.parents) if place.exists())
    if there.is_dir() is (there == log) or not os.access(there, os.R_OK | os.W_OK):
        return warn("heads log", f"{log} cannot be written: a record that is cut off would go unnoticed")
    size = log.stat().st_size if log.exists() else 0
    return ok("heads log", f"{log} has {size / 1_000_000:.1f} MB; copy it off this host (docs/audit.md)")


def _broker() -> Finding:
    url = env.read().BROKER_URL
    if url.startswith("memory"):
        return ok("broker", "in this process; only `up` works with it, and rows are the queue anyway")
    try:
        with app.connection_for_read(connect_timeout=CONNECT_S) as link:
            link.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=CONNECT_S)
    except (OperationalError, OSError) as error:
        return fail("broker", f"{place(url)} does not answer ({type(error).__name__}): runs wait, nothing is lost")
    return ok("broker", f"{place(url)} answers")


def _routes() -> Iterator[Finding]:
    for number, route in enumerate(env.read().AGENT_MODELS, start=1):
        yield _route(f"model route {number}", route)


def _blocked() -> Finding:
    names, faults = env.read().TOOLS_BLOCKED, checks.blocked_faults()
    if faults:
        return fail("blocked tools", "; ".join(faults))
    return warn("blocked tools", f"no run may use {', '.join(names)}") if names else ok("blocked tools", "none")


def _route(name: str, route: str) -> Finding:
    provider = route.partition(":")[0]
    given = env.read()
    if not gateway.speaks(provider):
        return fail(name, f"{route}: this release speaks {gateway.offered()}")
    key = {"openai": given.OPENAI_API_KEY, "anthropic": given.ANTHROPIC_API_KEY}.get(provider.removesuffix("_xml"))
    origin = gateway.origin(route)
    if origin and key is None:
        return warn(name, f"{route} at {origin}, without a key")
    return ok(name, f"{route}{f' at {origin}' if origin else ', needs no network'}")
