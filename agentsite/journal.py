"""Floor: adds a line to a log of this host, which several processes append to at once. Imports no domain package."""

from __future__ import annotations

import os
from pathlib import Path


def add(path: Path, line: bytes, *, synced: bool) -> None:
    """Append one line in one piece; it does not stick to one that was torn. `synced`: it is on the disk afterwards.

    The file is opened anew each time, so a rotation by renaming needs no signal. Raises OSError.
    """
    log = _opened(path)
    try:
        # Another's line that is half in looks torn, too: then an empty line stands between, which is none.
        size = os.fstat(log).st_size
        torn = size > 0 and os.pread(log, 1, size - 1) != b"\n"
        whole = b"\n" * torn + line + b"\n"
        if os.write(log, whole) != len(whole):
            raise OSError("the line is not whole")
        if synced:
            os.fsync(log)
    finally:
        os.close(log)


def _opened(path: Path) -> int:
    """The file's descriptor, its folder made where there is none."""
    # Never waits: what stands there may be a pipe that nobody reads.
    how = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
    try:
        return os.open(path, how, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, how, 0o600)
