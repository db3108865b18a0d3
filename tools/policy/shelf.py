"""Search indexes on this host's disk: built beside, renamed when whole, checked when opened. Knows no rows, no Django.

    VAR_DIR/policy-index/<tenant>/<stamp>-<how it is made>/   words/ (the ranking's own)  rows  manifest.json
    VAR_DIR/policy-index/<tenant>/lock                        held by the one builder; the kernel frees it when he dies

Nothing in here may not be lost: whatever is missing or broken is built again from rows.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from agentsite import env
from tools.policy import ranking

FOLDER, LOCK, MANIFEST, ROWS, WORDS = "policy-index", "lock", "manifest.json", "rows", "words"
HALF_BUILT, GONE = ".build-", ".gone-"
NAMES = re.compile(r"[a-z0-9_]{1,64}")
ROW = struct.Struct("<QQ16s")
"""Of each passage its row's id, its document's and a digest of its hash, at the place of the ranking's key."""


class Unusable(Exception):
    """No index could be built or opened on this disk; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """A passage to be indexed: its row's id, its document's and its hash, and the words it is found by."""

    pk: int
    document: int
    content_hash: str
    title: str
    section: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A passage that was found: its row's id, its document's, and `digest_of` the hash it had in the index.

    What is near in meaning alone is in no index: the last two are None.
    """

    pk: int
    score: float
    document: int | None = None
    digest: bytes | None = None


class Opened:
    """An index open for reading in this process; it serves on when its directory is removed."""

    def __init__(self, stamp: str, ranker: ranking.Ranker, rows: bytes) -> None:
        self.stamp, self.ranker, self._rows = stamp, ranker, rows

    def __len__(self) -> int:
        return len(self._rows) // ROW.size

    def hits(self, query: str, limit: int) -> list[Hit]:
        """The best passages, best first; equal scores by document and place in it."""
        return [self._hit(key, score) for key, score in self.ranker.search(query, limit)]

    def _hit(self, key: int, score: float) -> Hit:
        pk, document, digest = ROW.unpack_from(self._rows, key * ROW.size)
        return Hit(pk=pk, score=score, document=document, digest=digest)


def digest_of(content_hash: str) -> bytes:
    """What an index keeps of a passage's hash, whatever its form."""
    return hashlib.blake2b(content_hash.encode(), digest_size=16).digest()


def folder(tenant_id: str) -> Path:
    assert NAMES.fullmatch(tenant_id), "a tenant's id is a folder's name"
    return env.read().VAR_DIR.absolute() / FOLDER / tenant_id


def place(tenant_id: str, stamp: str) -> Path:
    """Where the index with this stamp is, or will be. Another release may rank otherwise: it has its own."""
    return folder(tenant_id) / f"{stamp}-{_how_made()}"


@lru_cache(maxsize=1)
def _how_made() -> str:
    source = Path(ranking.__file__).read_bytes() + version("tantivy").encode() + ROW.format.encode()
    return hashlib.sha256(source).hexdigest()[:8]


# --- the one builder -------------------------------------------------------------------------------------------

_held: set[int] = set()
"""Descriptors of locks that this process holds."""


def _let_go_in_child() -> None:
    # A lock lives as long as any copy of its descriptor: a fork made while we build must not keep it after we die.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


class Lock:
    """The right to build a tenant's index on this host; to be released, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _held.add(descriptor)

    def release(self) -> None:
        if self._descriptor in _held:
            _held.discard(self._descriptor)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)


def try_lock(tenant_id: str) -> Lock | None:
    """The right to build, or None while somebody else has it. Raises Unusable."""
    try:
        folder(tenant_id).mkdir(parents=True, exist_ok=True)
        path = folder(tenant_id) / LOCK
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unusable(str(error)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody may have removed the whole folder in between: a lock on a file that is gone keeps nobody out.
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return Lock(descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:  # a file system without locks is no builder that comes to an end
        os.close(descriptor)
        raise Unusable(str(error)) from error
    os.close(descriptor)
    return None


def is_locked(tenant_id: str) -> bool:
    """Whether somebody on this host builds; looked at, nothing is made."""
    try:
        descriptor = os.open(folder(tenant_id) / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def fault(tenant_id: str) -> str | None:
    """Why nothing can be written where indexes are kept; None where nothing stands against it. Writes nothing."""
    path = folder(tenant_id)
    while not path.exists() and path != path.parent:
        path = path.parent
    if not path.is_dir():
        return f"{path} is no directory"
    return None if os.access(path, os.W_OK | os.X_OK) else f"{path} may not be written"


# --- building --------------------------------------------------------------------------------------------------


def build(tenant_id: str, stamp: str, contents: Iterable[Content]) -> Opened:
    """Writes the index of these passages, puts it in its place whole, and removes those of other stamps.

    By the holder of the lock alone. Raises Unusable; what `contents` raises goes through.
    """
    beside = folder(tenant_id) / f"{HALF_BUILT}{secrets.token_hex(8)}"
    try:
        _write(beside, stamp, contents)
        _publish(beside, place(tenant_id, stamp))
    except (OSError, ValueError) as error:
        raise Unusable(f"{type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    _tidy(tenant_id, stamp)
    found = opened(tenant_id, stamp)
    if found is None:
        raise Unusable("what was just built cannot be opened")
    return found


def _write(path: Path, stamp: str, contents: Iterable[Content]) -> None:
    rows = bytearray()
    path.mkdir(parents=True)
    ranking.build(path / WORDS, _entries(contents, rows))
    (path / ROWS).write_bytes(rows)
    manifest = {"stamp": stamp, "passages": len(rows) // ROW.size, "files": _files(path)}
    (path / MANIFEST).write_text(json.dumps(manifest))


def _entries(contents: Iterable[Content], rows: bytearray) -> Iterator[ranking.Entry]:
    for key, one in enumerate(contents):
        rows += ROW.pack(one.pk, one.document, digest_of(one.content_hash))
        yield ranking.Entry(key=key, title=one.title, section=one.section, text=one.text)


def _publish(beside: Path, where: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        # What stands there is broken, or its holder would not be building.
        where.rename(where.with_name(f"{GONE}{secrets.token_hex(8)}"))
    beside.rename(where)


def _tidy(tenant_id: str, stamp: str) -> None:
    """Removes every other index of the tenant, and what dead builders left. Who has one open reads on in it."""
    for path in folder(tenant_id).iterdir():
        if path.name == LOCK or path.name.startswith(stamp):
            continue
        gone = path
        if not path.name.startswith((GONE, HALF_BUILT)):
            gone = path.with_name(f"{GONE}{secrets.token_hex(8)}")  # first by its name: nobody opens half of it
            with contextlib.suppress(OSError):
                path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


# --- opening ---------------------------------------------------------------------------------------------------


def opened(tenant_id: str, stamp: str) -> Opened | None:
    """The index with this stamp, open; None where there is none that is whole."""
    path = place(tenant_id, stamp)
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        if manifest["stamp"] != stamp or _files(path, manifest["files"]) != manifest["files"]:
            return None
        return Opened(stamp, ranking.open_index(path / WORDS), (path / ROWS).read_bytes())
    except (OSError, ValueError, KeyError, TypeError):
        return None


def any_opened(tenant_id: str) -> Opened | None:
    """The newest index that is whole, whatever its stamp: it serves until the right one is there."""
    with contextlib.suppress(OSError):
        ours = [path for path in folder(tenant_id).glob(f"[!.]*-{_how_made()}") if path.is_dir()]
        for path in sorted(ours, key=lambda path: path.stat().st_mtime, reverse=True):
            found = opened(tenant_id, path.name.partition("-")[0])
            if found is not None:
                return found
    return None


def _files(path: Path, names: Iterable[str] | None = None) -> dict[str, list[int]]:
    """Size and checksum by name; of all files but those that readers and writers hold as locks."""
    found = names if names is not None else [str(p.relative_to(path)) for p in path.rglob("*") if _is_kept(p)]
    contents = {name: (path / name).read_bytes() for name in found}
    return {name: [len(raw), zlib.crc32(raw)] for name, raw in contents.items()}


def _is_kept(path: Path) -> bool:
    return path.is_file() and not path.name.endswith(".lock")


def size_on_disk(tenant_id: str, stamp: str) -> int | None:
    """Bytes of the index with this stamp; None where there is none."""
    path = place(tenant_id, stamp)
    if not path.is_dir():
        return None
    with contextlib.suppress(OSError):
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return None
