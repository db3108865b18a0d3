"""Makes the vectors that a tenant's passages lack, in batches, one maker a tenant at a time. Never imports runs.

What was made stays: a maker that was killed, or ran out of time, is followed by one that goes on where it stopped. Who
embeds under a name that another model has taken meanwhile is found out by one text whose vector is known, and then all
are made again: vectors of two models have nothing to say to each other. Nothing here may fail a search or a load.
"""

from __future__ import annotations

import secrets
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from django.db import connection, transaction
from django.db.models import Q, QuerySet

from agentsite import clock, env, redaction, telemetry
from agentsite.canonical import sha256_bytes
from tools import breaker
from tools.adapters import embeddings, http
from tools.adapters.embeddings import Endpoint, TextRefused
from tools.errors import BadAnswer, ReadFailed, UpstreamUnavailable
from tools.models import PassageVector, PolicyCorpus, PolicyDocument, PolicyPassage
from tools.policy import index

DEPENDENCY = "embeddings"
WITHIN_S = 2.0
BATCH, SMALL_BATCH = 32, 8
SHORT_S = 10.0
"""Who has less than so many seconds in all asks for few at a time."""
BATCH_TIMEOUT_S = 30.0
GRACE_S = 2.0
ENOUGH_S = 0.5
MAX_CHARS = 8_000
FEWEST_CHARS = 200
TRIES = 5
MOST_REFUSALS, MOST_OF_A_GOOD_ONE = 12, 120
"""In a row. To halve a batch to one text, and that one to FEWEST_CHARS, takes eleven: of an endpoint that took none yet
more is no matter of the texts."""
SAME_MODEL = 0.95
"""Cosine of two vectors of one text: the same model's differ in rounding alone."""
ROWS = 500

T = TypeVar("T")
Stored = dict[str, tuple[int, bytes]]
"""Row and vector by the name of their text."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How many of a tenant's texts have a vector of the model in use. `stopped` is a slug where a maker gave up early:
    `busy`, `out_of_time`, or what the endpoint did."""

    texts: int
    missing: int
    made: int = 0
    stopped: str = ""


@dataclass(frozen=True, kw_only=True)
class Text:
    """A passage as it is embedded, with the titles it stands under: `name` is the hash of the whole."""

    key: int
    name: str
    text: str


def configured() -> Endpoint | None:
    """The endpoint of this environment; None: search goes by words alone."""
    given = env.read()
    if not given.EMBEDDINGS_URL:
        return None
    return Endpoint(url=given.EMBEDDINGS_URL, model=given.EMBEDDINGS_MODEL, key=given.EMBEDDINGS_API_KEY)


def embed_missing(tenant_id: str, *, within_s: float = WITHIN_S) -> Coverage | None:
    """Makes what is missing, for so many seconds at most; None where no endpoint is configured. Raises DatabaseError.

    An endpoint that names a time is waited for as long as that leaves some of the seconds.
    """
    endpoint = configured()
    if endpoint is None:
        return None
    lease = _Lease(tenant_id, min(within_s, BATCH_TIMEOUT_S) + GRACE_S)
    if not lease.take():
        return replace(_covered(tenant_id, endpoint.model), stopped="busy")
    try:
        return _Maker(lease, endpoint, clock.monotonic() + within_s).all()
    finally:
        lease.give_back()


def coverage(tenant_id: str) -> Coverage | None:
    """What is embedded now; None where no endpoint is configured. Asks nobody."""
    endpoint = configured()
    return _covered(tenant_id, endpoint.model) if endpoint else None


def texts(tenant_id: str) -> Iterator[Text]:
    """Every passage that the index holds, under the titles it stands under."""
    documents = PolicyDocument.objects.filter(tenant_id=tenant_id).exclude(status="draft").defer("body")
    titles = {document.pk: document.title for document in index.shown(documents).values()}
    rows = PolicyPassage.objects.filter(document__tenant_id=tenant_id).exclude(document__status="draft")
    for key, document, section, text in rows.values_list("pk", "document_id", "section", "text").iterator(ROWS):
        if document in titles:
            whole = f"{titles[document]}\n{section}\n\n{text}"
            yield Text(key=key, name=sha256_bytes(whole.encode()), text=whole)


def ask(endpoint: Endpoint, asked: list[str], *, timeout_s: float, slow_is_down: bool) -> list[array[float]]:
    """The vectors of texts, without any secret in them, through the breaker. Raises ReadFailed.

    No database connection is held meanwhile. An endpoint that answers nonsense is of no more use than one that is away.
    """
    account = breaker.account_of(endpoint.model, endpoint.url)
    with breaker.watched(DEPENDENCY, account, lease_s=timeout_s + breaker.LEASE_GRACE_S) as watch:
        _without_connection()
        try:
            made = embeddings.embed(
                http.for_models(), endpoint, [redaction.text(one) for one in asked], timeout_s=timeout_s
            )
        except TextRefused:
            watch.saw(None)
            raise
        except ReadFailed as error:
            if slow_is_down or error.slug != "timeout":
                watch.saw(UpstreamUnavailable(slug=error.slug, retry_after_s=error.retry_after_s))
            raise
        watch.saw(None)
        return made


def _without_connection() -> None:
    """None is held while the world takes its time; inside a transaction it is kept."""
    if not connection.in_atomic_block:
        connection.close()


def _covered(tenant_id: str, model: str) -> Coverage:
    names = {text.name for text in texts(tenant_id)}
    held = set(PassageVector.objects.filter(tenant_id=tenant_id, model=model).values_list("content_hash", flat=True))
    return Coverage(texts=len(names), missing=len(names - held))


class _Lease:
    """The right to make a tenant's vectors, by a compare-and-set in database time: one request long, so that it ends
    soon where its holder dies."""

    def __init__(self, tenant_id: str, lasts_s: float) -> None:
        self.tenant_id, self._lasts_s = tenant_id, lasts_s
        self._token = secrets.token_hex(16)

    def take(self) -> bool:
        free = Q(embeds_until=None) | Q(embeds_until__lte=breaker.Later(0))
        taken = PolicyCorpus.objects.filter(free, tenant_id=self.tenant_id)
        return taken.update(embeds_token=self._token, embeds_until=breaker.Later(self._lasts_s)) > 0

    def hold(self, wait_s: float) -> None:
        """For a pause before the next request, of which other makers make no use."""
        self._mine().update(embeds_until=breaker.Later(wait_s + self._lasts_s))

    def give_back(self) -> None:
        self._mine().update(embeds_token="", embeds_until=None)

    @transaction.atomic
    def change(self, *, gone: list[int], made: list[PassageVector]) -> bool:
        """One batch, if the right is still ours; whoever holds vectors in memory learns it by another stamp."""
        stamp = secrets.token_hex(16)
        if not self._mine().update(vectors_stamp=stamp, embeds_until=breaker.Later(self._lasts_s)):
            return False
        for rows in _pieces(gone, ROWS):
            PassageVector.objects.filter(pk__in=rows).delete()
        PassageVector.objects.bulk_create(made, ignore_conflicts=True, batch_size=ROWS)
        return True

    def _mine(self) -> QuerySet[PolicyCorpus]:
        return PolicyCorpus.objects.filter(tenant_id=self.tenant_id, embeds_token=self._token)


class _Maker:
    """One pass over a tenant's texts."""

    def __init__(self, lease: _Lease, endpoint: Endpoint, ends_at: float) -> None:
        self._lease, self._endpoint, self._ends_at = lease, endpoint, ends_at
        self._wanted = {text.name: text for text in texts(lease.tenant_id)}
        self._batch = BATCH if ends_at - clock.monotonic() > SHORT_S else SMALL_BATCH
        self._dimensions, self._cause = 0, ""
        self._made = self._refusals = self._failures = 0

    def all(self) -> Coverage:
        stopped = self._until_stopped()
        left = self._tidied()
        if stopped:
            telemetry.count("embeddings_stopped", reason=stopped)
        telemetry.log("embeddings.made", tenant=self._lease.tenant_id, made=self._made, missing=left, stopped=stopped)
        return Coverage(texts=len(self._wanted), missing=left, made=self._made, stopped=stopped)

    def _until_stopped(self) -> str:
        missing = self._missing()
        if isinstance(missing, str):
            return missing
        batches = [list(piece) for piece in _pieces(missing, self._batch)][::-1]
        while batches:
            batch = batches.pop()
            made = self._asked(batch)
            if isinstance(made, TextRefused):
                batches += _smaller(batch)
            elif isinstance(made, str):
                return made
            elif not self._lease.change(gone=[], made=[self._row(t, v) for t, v in zip(batch, made, strict=True)]):
                return "busy"
            else:
                self._made += len(batch)
        return ""

    def _missing(self) -> list[Text] | str:
        """What is to be made: everything, where what is stored is of another model than answers now."""
        held = self._held()
        known = next((name for name in held if name in self._wanted), None)
        if known is not None:
            again = self._asked([self._wanted[known]])
            if isinstance(again, str):
                return again
            odd = {} if isinstance(again, TextRefused) else _of_another(again[0], held, known)
            if odd and not self._lease.change(gone=[pk for pk, _ in odd.values()], made=[]):
                return "busy"
            held = {name: row for name, row in held.items() if name not in odd}
        return [text for name, text in self._wanted.items() if name not in held]

    def _held(self) -> Stored:
        rows = PassageVector.objects.filter(tenant_id=self._lease.tenant_id, model=self._endpoint.model)
        found = rows.order_by("pk").values_list("content_hash", "pk", "vector")
        return {name: (pk, bytes(vector)) for name, pk, vector in found}

    def _asked(self, batch: list[Text]) -> list[array[float]] | TextRefused | str:
        """The vectors; or that these texts, or so many, are not taken; or why there is no going on."""
        while True:
            left_s = self._ends_at - clock.monotonic()
            if left_s < ENOUGH_S:
                return "out_of_time"
            try:
                return self._answered(batch, min(left_s, BATCH_TIMEOUT_S))
            except TextRefused as refused:
                self._refusals += 1
                most = MOST_OF_A_GOOD_ONE if self._dimensions else MOST_REFUSALS
                return refused if self._refusals <= most else refused.slug
            except ReadFailed as error:
                if error.slug == "timeout" and len(batch) > 1:
                    return TextRefused()  # fewer may be done in time
                self._failures += 1
                self._cause = self._cause if error.slug == "breaker_open" and self._cause else error.slug
                wait_s = self._patience_s(error)
                if wait_s is None:
                    return self._cause
                self._lease.hold(wait_s)
                _without_connection()
                time.sleep(wait_s)

    def _answered(self, batch: list[Text], timeout_s: float) -> list[array[float]]:
        made = ask(self._endpoint, [t.text[:MAX_CHARS] for t in batch], timeout_s=timeout_s, slow_is_down=False)
        if len(made[0]) != (self._dimensions or len(made[0])):
            raise BadAnswer("another length than a moment ago")
        self._dimensions = len(made[0])
        self._refusals = self._failures = 0
        return made

    def _patience_s(self, error: ReadFailed) -> float | None:
        """How long to wait before the same is asked again; None: not at all."""
        if not error.retryable or self._failures > TRIES:
            return None
        wait_s = 0.25 * 2**self._failures if error.retry_after_s is None else error.retry_after_s + 0.05
        return wait_s if wait_s + ENOUGH_S < self._ends_at - clock.monotonic() else None

    def _row(self, text: Text, vector: array[float]) -> PassageVector:
        return PassageVector(
            tenant_id=self._lease.tenant_id, model=self._endpoint.model, content_hash=text.name, vector=packed(vector)
        )

    def _tidied(self) -> int:
        """Vectors of texts that no passage has any more go, of whatever model; how many texts are without one."""
        rows = PassageVector.objects.filter(tenant_id=self._lease.tenant_id).values_list("pk", "content_hash", "model")
        held = list(rows)
        gone = [pk for pk, name, _ in held if name not in self._wanted]
        if gone:
            self._lease.change(gone=gone, made=[])
        return len(self._wanted.keys() - {name for _, name, model in held if model == self._endpoint.model})


def _smaller(batch: list[Text]) -> list[list[Text]]:
    """The same in two halves; a single text cut in half; nothing of one that is short already."""
    half = len(batch) // 2
    if half:
        return [batch[half:], batch[:half]]
    cut = min(len(batch[0].text), MAX_CHARS) // 2
    if cut >= FEWEST_CHARS:
        return [[replace(batch[0], text=batch[0].text[:cut])]]
    telemetry.count("embeddings_refused_texts")
    return []


def _of_another(again: array[float], held: Stored, known: str) -> Stored:
    """Of what is stored: all, where another model made `known` than made it `again`; else rows of another length."""
    before = unpacked(held[known][1])
    is_same = len(before) == len(again) and sum(a * b for a, b in zip(again, before, strict=True)) >= SAME_MODEL
    if not is_same:
        telemetry.count("embeddings_of_another_model")
        return held
    return {name: row for name, row in held.items() if len(row[1]) != len(held[known][1])}


def packed(vector: array[float]) -> bytes:
    """As it is stored: little-endian float32."""
    return _little(array("f", vector)).tobytes()


def unpacked(stored: bytes) -> array[float]:
    return _little(array("f", stored[: len(stored) // 4 * 4]))


def _little(numbers: array[float]) -> array[float]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _pieces(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
