"""Seals what a run's archive holds under a key of its own, so that whoever erases the key erases every copy. Imports
nothing of ours.

A key seals once: the text is packed and added to SHAKE-256 of key and label, which without the key is noise. It hides
and proves nothing; that the bytes are the written ones is told by the signed note in the database.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib

MOST = 512 * 1024 * 1024
"""Bytes of one part, unpacked. Files that came with a run are 30 at most, of 5 MB each."""
_DOMAIN = b"agentsite archive 1\0"


class Unopened(ValueError):
    """Not what was sealed under this key and label."""


def new_key() -> str:
    """64 hexadecimal digits nobody can guess."""
    return secrets.token_hex(32)


def seal(plain: bytes, key: str, label: str) -> bytes:
    """The text, packed, which only the key opens. The label says which part of which run: a key never serves twice."""
    return _added(zlib.compress(plain, 6), key, label)


def opened(sealed: bytes, key: str, label: str) -> bytes:
    """The text again. Raises Unopened."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(_added(sealed, key, label), MOST)
    except zlib.error:
        raise Unopened(label) from None
    if not unpacking.eof or unpacking.unused_data:
        raise Unopened(label)
    return plain


def _added(text: bytes, key: str, label: str) -> bytes:
    stream = hashlib.shake_256(_DOMAIN + key.encode() + b"\0" + label.encode()).digest(len(text))
    return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))
