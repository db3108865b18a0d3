"""Writes and reads files of archived runs: lines of JSON between a signed head and an end that counts and hashes them.

A file stands under its name only once all of it is on the disk. Imports no Django, no rows.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import os
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from agentsite import clock
from agentsite.canonical import NotStrictJson, canonical, strict_loads

FORMAT = 1
NAME = re.compile(r"archive-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{16}\.jsonl")
UNFINISHED = ".part"
MOST = 256 * 1024 * 1024
"""Bytes of a line: a run's files are 150 MB at most."""
Keys = Mapping[str, bytes]


class BadArchive(ValueError):
    """A file, or a line of it, that is not what this site wrote; the words name the file and the field."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One run in a file: the bytes of its line without the line break, and their SHA-256."""

    run_id: str
    raw: bytes
    sha256: str


def new_name(at: datetime) -> str:
    return f"archive-{at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(8)}.jsonl"


def line(run_id: str, parts: Mapping[str, bytes]) -> Line:
    """The line of a run whose sealed parts these are."""
    told = {"run": run_id, "parts": {name: b64encode(sealed).decode() for name, sealed in parts.items()}}
    raw = json.dumps(told, separators=(",", ":")).encode()
    return Line(run_id=run_id, raw=raw, sha256=hashlib.sha256(raw).hexdigest())


def write(folder: Path, name: str, lines: Sequence[Line], *, at: datetime, signer: tuple[str, bytes]) -> Path:
    """A file of these lines, on the disk when this returns. `signer`: (key id, secret).

    Raises OSError; then there is none under that name.
    """
    beside, made = folder / (name + UNFINISHED), folder / name
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            _fill(out, name, lines, at, signer)
            out.flush()
            os.fsync(out.fileno())
        beside.rename(made)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise
    synced(folder)
    return made


def synced(folder: Path) -> None:
    """Which files there are is on the disk, too."""
    found = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(found)
    finally:
        os.close(found)


def _fill(out: IO[bytes], name: str, lines: Sequence[Line], at: datetime, signer: tuple[str, bytes]) -> None:
    key_id, secret = signer
    told = {"agentsite_archive": FORMAT, "file": name, "made_at": clock.rfc3339(at), "runs": len(lines)}
    head = {**told, "key_id": key_id, "mac": _mac(secret, told)}
    digest = hashlib.sha256()
    for raw in (json.dumps(head, separators=(",", ":")).encode(), *(one.raw for one in lines)):
        digest.update(raw + b"\n")
        out.write(raw + b"\n")
    out.write(json.dumps({"end": len(lines), "sha256": digest.hexdigest()}, separators=(",", ":")).encode() + b"\n")


def _mac(secret: bytes, told: Mapping[str, Any]) -> str:
    return hmac.digest(secret, canonical({"kind": "archive.file", **told}), "sha256").hex()


# --- reading ---------------------------------------------------------------------------------------------------


def named(folder: Path, name: str) -> Path:
    """The file of that name in that folder and in no other. Raises BadArchive."""
    if NAME.fullmatch(name) is None:
        raise BadArchive(f"file: {name!r} is no name of an archive")
    return folder / name


def lines(path: Path, keys: Keys) -> Iterator[Line]:
    """Every run in a file. Raises BadArchive where it is not whole, or was written by another site."""
    with _opened(path) as source:
        raw, digest = _next(source, path), hashlib.sha256()
        count = _head(raw, path, keys)
        for _ in range(count):
            digest.update(raw + b"\n")
            raw = _next(source, path)
            yield _line(raw, path)
        digest.update(raw + b"\n")
        end = _json(_next(source, path), path, "end")
        if end != {"end": count, "sha256": digest.hexdigest()}:
            raise BadArchive(f"{path.name}: sha256: not that of its lines")
        if source.read(1):
            raise BadArchive(f"{path.name}: end: something stands after it")


def find(path: Path, run_id: str, sha256: str) -> Line:
    """The line of a run that has this hash, also in a file that is damaged elsewhere. Raises BadArchive."""
    begins, other = f'{{"run":"{run_id}"'.encode(), False
    with _opened(path) as source:
        while raw := source.readline(MOST):
            if raw.startswith(begins):
                raw = raw.removesuffix(b"\n")
                if hashlib.sha256(raw).hexdigest() == sha256:
                    return Line(run_id=run_id, raw=raw, sha256=sha256)
                other = True
    why = "another one than the run's row names" if other else "no line of the file has the one that its row names"
    raise BadArchive(f"{path.name}: run {run_id}: sha256: {why}")


def parts(one: Line) -> dict[str, bytes]:
    """The sealed parts in a line. Raises BadArchive."""
    found: Any = _json(one.raw, Path(one.run_id), "parts").get("parts")
    try:
        return {str(name): b64decode(sealed, validate=True) for name, sealed in found.items()}
    except (AttributeError, TypeError, binascii.Error, ValueError):
        raise BadArchive(f"run {one.run_id}: parts: not as they were written") from None


def whose(path: Path, keys: Keys) -> bool:
    """Whether this site wrote the head of that file."""
    try:
        with _opened(path) as source:
            _head(_next(source, path), path, keys)
    except BadArchive:
        return False
    return True


def _opened(path: Path) -> IO[bytes]:
    try:
        if not path.is_file():
            raise BadArchive(f"{path}: file: there is none")
        return path.open("rb")
    except OSError as error:
        raise BadArchive(f"{path}: file: it cannot be read ({type(error).__name__})") from None


def _next(source: IO[bytes], path: Path) -> bytes:
    raw = source.readline(MOST)
    if not raw.endswith(b"\n"):
        raise BadArchive(f"{path.name}: end: the file is cut off")
    return raw[:-1]


def _head(raw: bytes, path: Path, keys: Keys) -> int:
    """How many runs the file says it holds."""
    head = _json(raw, path, "agentsite_archive")
    if head.get("agentsite_archive") != FORMAT or type(head.get("runs")) is not int:
        raise BadArchive(f"{path.name}: agentsite_archive: no archive of format {FORMAT}")
    secret = keys.get(str(head.pop("key_id", "")))
    if secret is None:
        raise BadArchive(f"{path.name}: key_id: AUDIT_KEY of this site holds no such key")
    mac = str(head.pop("mac", ""))
    try:
        ours = hmac.compare_digest(_mac(secret, head).encode(), mac.encode("utf-8", "replace"))
    except ValueError:
        ours = False
    if not ours:
        raise BadArchive(f"{path.name}: mac: another site wrote it, or it was changed")
    named(path.parent, str(head.get("file")))
    count: int = head["runs"]
    return count


def _line(raw: bytes, path: Path) -> Line:
    run_id = _json(raw, path, "run").get("run")
    if not isinstance(run_id, str):
        raise BadArchive(f"{path.name}: run: a line names none")
    return Line(run_id=run_id, raw=raw, sha256=hashlib.sha256(raw).hexdigest())


def _json(raw: bytes, path: Path, field: str) -> dict[str, Any]:
    try:
        found = strict_loads(raw.decode())
    except (UnicodeDecodeError, NotStrictJson) as error:
        raise BadArchive(f"{path.name}: {field}: not readable ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise BadArchive(f"{path.name}: {field}: no object")
    return found
