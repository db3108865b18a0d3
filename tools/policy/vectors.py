"""Finds passages by meaning: cosine over stored vectors, and one ranking made of several. Never imports runs.

A tenant's vectors are held by each process that searches them, and read again when its stamp or its vectors' changes.
Without an endpoint, without vectors, or with an endpoint that is away, search goes by words alone and fails no more
than before. numpy is loaded only where vectors are there.
"""

from __future__ import annotations

import os
import re
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from agentsite import clock, env, redaction, telemetry
from tools.adapters.embeddings import Endpoint, TextRefused
from tools.errors import ReadFailed
from tools.models import PassageVector, PolicyCorpus
from tools.policy import embedding

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Keys = npt.NDArray[np.int64]

K = 60
"""Of reciprocal rank fusion (Cormack, Clarke, Büttcher 2009)."""
MAX_QUERY = 16_384
MAX_QUESTION = 4_000
SHORT_QUESTION = 1_000
FRESH_S = 5.0
"""While vectors are being made those held are read again no more often than this."""
HEAL_EVERY_S = 30.0
HEAL_IN_VAIN_S = 600.0
HEAL_WITHIN_S = 1.5
MAX_HELD_BYTES = 512 * 1024 * 1024
# What names a person or an object, and says nothing of what is asked: addresses, links, numbers of four digits and up.
_LINK = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}://\S*|www\.\S*")
_MAIL = re.compile(r"(?<![A-Za-z0-9._%+'-])[A-Za-z0-9._%+'-]++@[A-Za-z0-9.-]+")
_NUMBERED = re.compile(r"(?:[A-Za-z_#+/:.,-]|\d)+")
_DIGITS = 4


@dataclass(kw_only=True)
class Held:
    """The vectors of one tenant as this process has them: one row a passage that has one."""

    stamp: str
    vectors_stamp: str
    keys: Keys
    rows: Floats
    missing: int
    read_at: float
    heals_at: float

    @property
    def dimensions(self) -> int:
        return int(self.rows.shape[1])

    @property
    def size(self) -> int:
        return self.rows.nbytes + self.keys.nbytes

    @property
    def is_empty(self) -> bool:
        return not len(self.keys)


def nearest(tenant_id: str, query: str, limit: int) -> list[tuple[int, float]] | None:
    """Up to `limit` passages as (id, cosine), best first, equal ones by id; None where only words can be gone by.

    One call to the endpoint of EMBEDDINGS_TIMEOUT_S at most; what it is told is `question(query)`. What a hit says of
    currency is nothing: ask the rows.
    """
    endpoint = embedding.configured()
    asked = question(query)[:MAX_QUESTION] if endpoint and limit > 0 else ""
    held = _held(tenant_id, endpoint.model) if endpoint and asked else None
    if endpoint is None or held is None:
        return None
    if held.is_empty:
        _heal(tenant_id, held)
        return None
    try:
        vector = _vector(endpoint, asked)
    except ReadFailed as error:
        telemetry.count("embeddings_away", reason=error.slug)
        return None
    if len(vector) != held.dimensions:
        telemetry.count("embeddings_of_another_model")
        return None
    _heal(tenant_id, held)
    return _best(held, vector, limit)


def question(query: str) -> str:
    """What leaves of a question: no known secret, no address, no link, no number of four digits or more."""
    plain = _MAIL.sub(" ", _LINK.sub(" ", redaction.text(query[:MAX_QUERY])))
    kept = _NUMBERED.sub(lambda found: " " if _is_number(found[0]) else found[0], plain)
    return " ".join(kept.split())


def fuse(lists: Iterable[Sequence[tuple[int, float]]], limit: int) -> list[tuple[int, float]]:
    """One ranking of several, by the sum of 1 / (60 + rank); the scores of the lists count by their order alone.

    Best first, equal ones by key; a key that a list names twice counts once in it.
    """
    total: dict[int, float] = {}
    for ranked in lists:
        for rank, key in enumerate(dict.fromkeys(key for key, _ in ranked), start=1):
            total[key] = total.get(key, 0.0) + 1 / (K + rank)
    rounded = ((key, round(score, 12)) for key, score in total.items())
    return sorted(rounded, key=lambda pair: (-pair[1], pair[0]))[: max(0, limit)]


def _is_number(word: str) -> bool:
    return sum(char.isdigit() for char in word) >= _DIGITS


def _vector(endpoint: Endpoint, asked: str) -> array[float]:
    timeout_s = env.read().EMBEDDINGS_TIMEOUT_S
    try:
        return embedding.ask(endpoint, [asked], timeout_s=timeout_s, slow_is_down=True)[0]
    except TextRefused:
        if len(asked) <= SHORT_QUESTION:
            raise
        return embedding.ask(endpoint, [asked[:SHORT_QUESTION]], timeout_s=timeout_s, slow_is_down=True)[0]


def _heal(tenant_id: str, held: Held) -> None:
    """Some of what is missing, now and then: an endpoint that was away when a text was loaded is back one day."""
    if held.missing and clock.monotonic() >= held.heals_at:
        held.heals_at = clock.monotonic() + HEAL_EVERY_S
        done = embedding.embed_missing(tenant_id, within_s=HEAL_WITHIN_S)
        if done is not None and done.made:
            held.read_at = -FRESH_S  # what was made is to be seen by the next question
        elif done is not None:
            held.heals_at = clock.monotonic() + HEAL_IN_VAIN_S


def _best(held: Held, vector: array[float], limit: int) -> list[tuple[int, float]]:
    import numpy as np

    # Rounded, so that what is equal is so on every machine, whatever the order its sums were made in.
    cosines = np.round((held.rows @ np.asarray(vector, dtype=np.float32)).astype(np.float64), 6)
    most = min(limit, len(cosines))
    likely = np.flatnonzero(cosines >= max(0.0, float(np.partition(cosines, -most)[-most])))
    order = likely[np.lexsort((held.keys[likely], -cosines[likely]))][:most]
    return [(int(held.keys[at]), float(cosines[at])) for at in order if cosines[at] > 0]


# --- what this process holds -----------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Memory:
    """Vectors by tenant and model, the last used last; and who reads them from rows just now."""

    held: OrderedDict[tuple[str, str], Held] = field(default_factory=OrderedDict)
    reading: dict[tuple[str, str], threading.Lock] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, key: tuple[str, str]) -> tuple[Held | None, threading.Lock]:
        with self.lock:
            if key in self.held:
                self.held.move_to_end(key)
            return self.held.get(key), self.reading.setdefault(key, threading.Lock())

    def keep(self, key: tuple[str, str], found: Held) -> Held:
        with self.lock:
            self.held[key] = found
            self.held.move_to_end(key)
            while len(self.held) > 1 and sum(one.size for one in self.held.values()) > MAX_HELD_BYTES:
                self.held.popitem(last=False)
        return found


@lru_cache(maxsize=1)
def _memory_of(pid: int) -> _Memory:
    """A forked child has its own: a lock that another thread held at the fork would never be free."""
    return _Memory()


def _held(tenant_id: str, model: str) -> Held | None:
    """The tenant's vectors as of now; None where nothing is to be searched."""
    corpus = PolicyCorpus.objects.filter(tenant_id=tenant_id).values_list("stamp", "vectors_stamp").first()
    if corpus is None:
        return None
    memory, key = _memory_of(os.getpid()), (tenant_id, model)
    known, reading = memory.known(key)
    if known is not None and not _is_old(known, *corpus):
        return known
    # Megabytes take a moment to read: one thread does, and the others go by what was read before, if anything was.
    if not reading.acquire(blocking=known is None):
        return known
    try:
        known, _ = memory.known(key)
        if known is not None and not _is_old(known, *corpus):
            return known
        return memory.keep(key, _read(tenant_id, model, *corpus, before=known))
    finally:
        reading.release()


def _is_old(known: Held, stamp: str, vectors_stamp: str) -> bool:
    if known.stamp != stamp:
        return True
    aged = known.read_at < 0 or clock.monotonic() - known.read_at >= FRESH_S
    return known.vectors_stamp != vectors_stamp and (aged or known.is_empty)


def _read(tenant_id: str, model: str, stamp: str, vectors_stamp: str, *, before: Held | None) -> Held:
    import numpy as np

    rows = PassageVector.objects.filter(tenant_id=tenant_id, model=model).values_list("content_hash", "vector")
    stored = {name: bytes(vector) for name, vector in rows}
    # One length for all: rows of another are of another model, and are made again (`embedding`).
    lengths = Counter(len(vector) for vector in stored.values() if vector and not len(vector) % 4).most_common(1)
    size = lengths[0][0] if lengths else 4
    wanted = [(text.key, stored.get(text.name, b"")) for text in embedding.texts(tenant_id)]
    found = [(key, vector) for key, vector in wanted if len(vector) == size]
    matrix = np.frombuffer(b"".join(vector for _, vector in found), dtype="<f4").reshape(-1, size // 4)
    return Held(
        stamp=stamp, vectors_stamp=vectors_stamp, keys=np.array([key for key, _ in found], dtype=np.int64),
        rows=matrix, missing=len(wanted) - len(found), read_at=clock.monotonic(),
        heals_at=before.heals_at if before and before.stamp == stamp else 0.0,
    )  # fmt: skip
