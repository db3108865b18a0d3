"""How an event is sealed, computed from its stored text. Part of `runs.audit`; imports no Django and no rows.

Written apart from `runs.store.events`, which seals: over the stored canonical text as it is, so that a byte counts.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache

from agentsite.canonical import canonical_text
from runs.audit.values import Link, Noted, Payload

Keys = Mapping[str, bytes]
NOTHING = hashlib.sha256(b"null").hexdigest()
"""The digest of an event that was written without a payload."""


def keys_of(text: str) -> dict[str, bytes]:
    """AUDIT_KEY (`ID:SECRET[,ID:SECRET…]`) as secrets by key id: the first signs, all of them verify."""
    parts = (pair.partition(":") for pair in text.split(","))
    return {key_id: secret.encode() for key_id, _, secret in parts}


@lru_cache(maxsize=4096)
def _text(value: str | None) -> str:
    try:
        return canonical_text(value)
    except ValueError:
        return "?"  # of nothing that was ever signed


def payload_state(payload: str | None, salt: str | None, digest: str) -> Payload:
    """What became of a payload (its canonical text), by the digest that the chain covers."""
    if payload is not None:
        found = hashlib.sha256((salt or "").encode() + payload.encode("utf-8", "replace")).hexdigest()
        return "whole" if found == digest else "changed"
    if digest == NOTHING:
        return "whole" if salt is None else "changed"
    return "gone" if salt is None else "removed"


def mac_of(secret: bytes, run_id: str, link: Link, *, seq: object, prev: str, spanned: bool = True) -> str:
    """The MAC of what a link holds, at that place of that run. `spanned` False: as it was before spans were covered."""
    span = f'"span":{_text(link.span)},' if spanned else ""
    signed = (
        f'{prev}{{"at":{_text(link.at)},"meta":{link.meta},"run":"{run_id}","seq":{seq},{span}'
        f'"type":{_text(link.type)},"version":{link.version}}}{link.digest}'
    )
    return hmac.digest(secret, signed.encode("utf-8", "replace"), "sha256").hex()


def sealed(keys: Keys, run_id: str, link: Link, *, seq: object, prev: str, mac: str) -> bool | None:
    """Whether this MAC is that of the link at that place; None: yes, in the older form, without the span."""
    secret = keys.get(link.key_id)
    if secret is None:
        return False
    held = mac.encode("utf-8", "replace")  # it may be any text
    if hmac.compare_digest(mac_of(secret, run_id, link, seq=seq, prev=prev).encode(), held):
        return True
    older = mac_of(secret, run_id, link, seq=seq, prev=prev, spanned=False)
    return None if hmac.compare_digest(older.encode(), held) else False


def noted(keys: Keys, run_id: str, note: Noted) -> bool:
    """Whether the note of an archived run is one that a site with these keys signed."""
    secret = keys.get(note.key_id)
    if secret is None:
        return False
    told = f'{{"at":{_text(note.at)},"file":{_text(note.file)},"kind":"archive","last_seq":{note.last_seq},'
    told += f'"run":"{run_id}","sha256":{_text(note.sha256)}}}'
    made = hmac.digest(secret, told.encode("utf-8", "replace"), "sha256").hex()
    return hmac.compare_digest(made.encode(), note.mac.encode("utf-8", "replace"))
