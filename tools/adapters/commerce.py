"""The business system's HTTP interface (contract, section 6) as typed values; takes a client, never imports httpx.

Nothing that arrives is believed: an answer is read strictly, and one that cannot be read is an error and never an
empty list (M58). What it holds beyond the fields known here is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from agentsite import clock, money, redaction
from agentsite.canonical import NotStrictJson, strict_loads
from agentsite.money import Money
from agentsite.text import storable
from tools.adapters.http import Client, ConnectFailed, CutShort, HttpError, Reply, TooLarge, TooSlow
from tools.contracts import Json, Order, Payment, Refund, WriteAnswer
from tools.errors import (
    AccessRefused,
    BadAnswer,
    NobodyThere,
    NotFound,
    OutcomeUnknown,
    ReadFailed,
    Refused,
    UpstreamUnavailable,
)

ID = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
MAX_ENTRIES = 1_000
MAX_NOTE = 4_000
MAX_SHORT = 512
CUT = " [cut]"
MAX_SAFE_INT = 2**53 - 1
# A list that says it is not the whole proves no absence.
MORE = ("has_more", "next")

SLUG_OF_REFUSAL = {
    400: "rejected_by_backend",
    401: "access_refused",
    403: "access_refused",
    404: "rejected_by_backend",
    405: "rejected_by_backend",
    422: "amount_exceeds_remaining",
}
"""Answers to a POST that prove nothing was made by it."""


def encode_key(key: str) -> str:
    """The logical key as this interface takes it: unchanged. Always the same text for the same key."""
    return key


def get_order(
    client: Client, backend_url: str, token: SecretStr, order_id: str, trace_id: str, timeout_s: float
) -> Order:
    """The order as it is now. Raises ReadFailed."""
    # Dots too: an id of two dots would be a step up in the path, which clients and proxies take by themselves.
    path = f"/v1/orders/{quote(order_id, safe='').replace('.', '%2E')}"
    document = _read(client, backend_url, path, None, token, trace_id, timeout_s)
    if _id(document, "order_id") != order_id:
        raise BadAnswer("another order than asked for")
    total = _money(document, "total")
    return Order(
        order_id=order_id,
        customer_id=_id(document, "customer_id"),
        total=total,
        amount_due=total if document.get("amount_due") is None else _money(document, "amount_due"),
        status=_short(document, "status"),
        note=_note(document),
    )


def get_payments(
    client: Client, backend_url: str, token: SecretStr, order_id: str, trace_id: str, timeout_s: float
) -> tuple[Payment, ...]:
    """Every payment of the order. Raises ReadFailed."""
    wanted = {"order_id": order_id}
    document = _read(client, backend_url, "/v1/payments", wanted, token, trace_id, timeout_s)
    payments = tuple(_payment(entry) for entry in _entries(document, "payments"))
    _belong(order_id, [(p.order_id, p.payment_id) for p in payments])
    return payments


def get_refunds(
    client: Client, backend_url: str, token: SecretStr, order_id: str, trace_id: str, timeout_s: float
) -> tuple[Refund, ...]:
    """Every refund of the order, whoever made it. Raises ReadFailed."""
    wanted = {"order_id": order_id}
    document = _read(client, backend_url, "/v1/refunds", wanted, token, trace_id, timeout_s)
    refunds = tuple(_refund(entry) for entry in _entries(document, "refunds"))
    _belong(order_id, [(r.order_id, r.refund_id) for r in refunds])
    return refunds


def post_refund(
    client: Client,
    backend_url: str,
    token: SecretStr,
    *,
    key: str,
    body: str,
    trace_id: str,
    timeout_s: float,
    before_send: Callable[[], None] | None = None,
) -> WriteAnswer:
    """Asks once for a refund, with exactly these bytes.

    Raises Refused where the answer proves that this call made nothing, else OutcomeUnknown: also where the
    connection was never made, because one rule for every doubt is the safer one. What was made may differ from
    what was asked: verification compares.
    """
    started = clock.monotonic()
    headers = _headers(token, trace_id) | {"Idempotency-Key": encode_key(key), "Content-Type": "application/json"}
    try:
        reply = client.request(
            "POST",
            _url(backend_url, "/v1/refunds"),
            headers=headers,
            body=body.encode(),
            timeout_s=timeout_s,
            before_send=before_send,
        )
    except (CutShort, TooLarge) as error:
        raise OutcomeUnknown(str(error), slug="bad_answer") from None
    except HttpError as error:
        slug = "timeout" if isinstance(error, TooSlow) else "connection"
        raise NobodyThere(str(error), slug=slug) from None
    refund = _made(reply)
    return WriteAnswer(refund=refund, replayed=reply.status == 200, took_ms=round((clock.monotonic() - started) * 1000))


def _made(reply: Reply) -> Refund:
    if reply.status in (200, 201):
        try:
            return _refund(_document(reply))
        except BadAnswer as error:
            raise OutcomeUnknown(str(error), slug="bad_answer") from None
    if reply.status == 409:
        if _says_facts_changed(reply):
            raise Refused(slug="facts_changed")
        raise OutcomeUnknown(slug="key_conflict")
    if reply.status in SLUG_OF_REFUSAL:
        raise Refused(slug=SLUG_OF_REFUSAL[reply.status])
    if _is_down(reply.status):
        raise NobodyThere(slug=f"http_{reply.status}", retry_after_s=_named_s(reply))
    raise OutcomeUnknown(slug=f"http_{reply.status}")


def _is_down(status: int) -> bool:
    return status in (408, 425, 429) or status >= 500


def _named_s(reply: Reply) -> float | None:
    """Seconds for which it asked to be left alone; only these two answers mean that."""
    return reply.retry_after_s if reply.status in (429, 503) else None


def _says_facts_changed(reply: Reply) -> bool:
    """Whether an error, ours or an RFC 9457 problem, names that slug."""
    try:
        document = _json(reply)
    except BadAnswer:
        return False
    if not isinstance(document, dict):
        return False
    kind = document.get("type")
    return document.get("error") == "facts-changed" or (isinstance(kind, str) and kind.endswith("facts-changed"))


def _read(
    client: Client,
    backend_url: str,
    path: str,
    params: dict[str, str] | None,
    token: SecretStr,
    trace_id: str,
    timeout_s: float,
) -> Json:
    url = _url(backend_url, path)
    try:
        reply = client.request("GET", url, headers=_headers(token, trace_id), params=params, timeout_s=timeout_s)
    except (CutShort, TooLarge) as error:
        raise BadAnswer(str(error)) from None
    except HttpError as error:
        raise UpstreamUnavailable(_why(error)) from None
    if reply.status != 200:
        raise _failure(reply)
    return _document(reply)


def _why(error: HttpError) -> str:
    if isinstance(error, TooSlow):
        return "timeout"
    return "no connection" if isinstance(error, ConnectFailed) else "connection lost"


def _failure(reply: Reply) -> ReadFailed:
    status, word = reply.status, f"http_{reply.status}"
    if status in (401, 403):
        return AccessRefused(word)
    if status == 404:
        return NotFound(word)
    if _is_down(status):
        return UpstreamUnavailable(word, retry_after_s=_named_s(reply))
    # What is left of 4xx is final (M56); an unasked-for success or a redirect is an answer of another shape.
    return ReadFailed(word, slug="rejected_by_backend") if 400 <= status < 500 else BadAnswer(word)


def _url(backend_url: str, path: str) -> str:
    return backend_url.rstrip("/") + path


def _headers(token: SecretStr, trace_id: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.get_secret_value()}", "X-Trace-Id": trace_id}


def _json(reply: Reply) -> object:
    try:
        document: object = strict_loads(reply.body.decode())
    except (UnicodeDecodeError, NotStrictJson):
        raise BadAnswer("no JSON") from None
    return redaction.redact(document)  # a system may repeat a credential it was sent, in any field


def _document(reply: Reply) -> Json:
    document = _json(reply)
    if not isinstance(document, dict):
        raise BadAnswer("no object")
    # An error beside an empty list is no empty list.
    if document.get("error"):
        raise BadAnswer("an error, sent as a success")
    return document


def _entries(document: Json, name: str) -> list[Json]:
    entries = document.get(name)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadAnswer(f"{name}: no list of objects")
    if len(entries) > MAX_ENTRIES or any(document.get(more) for more in MORE):
        raise BadAnswer(f"{name}: not the whole list, or more than {MAX_ENTRIES} entries")
    return entries


def _belong(order_id: str, found: list[tuple[str, str]]) -> None:
    """An entry of another order, or one listed twice, would be counted as money that is not there."""
    if any(of_order != order_id for of_order, _ in found):
        raise BadAnswer("an entry of another order than asked for")
    if len({one for _, one in found}) != len(found):
        raise BadAnswer("an entry is listed twice")


def _payment(entry: Json) -> Payment:
    return Payment(
        payment_id=_id(entry, "payment_id"),
        order_id=_id(entry, "order_id"),
        state=_word(entry, "state"),
        amount=_money(entry, "amount"),
        captured_at=_moment(entry, "captured_at"),
        note=_note(entry),
    )


def _refund(entry: Json) -> Refund:
    return Refund(
        refund_id=_id(entry, "refund_id"),
        payment_id=_id(entry, "payment_id"),
        order_id=_id(entry, "order_id"),
        state=_word(entry, "state"),
        amount=_money(entry, "amount"),
        idempotency_key=None if entry.get("idempotency_key") is None else _short(entry, "idempotency_key"),
        metadata=_metadata(entry),
        created_at=_moment(entry, "created_at"),
    )


def _id(entry: Json, name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise BadAnswer(f"{name}: no id")
    return value


def _word(entry: Json, name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not WORD.fullmatch(value):
        raise BadAnswer(f"{name}: no word")
    return value


def _money(entry: Json, name: str) -> Money:
    try:
        return money.parse(entry.get(name))
    except money.BadMoney as error:
        raise BadAnswer(f"{name}: {error}") from None


def _moment(entry: Json, name: str) -> str | None:
    """RFC 3339 in UTC with all its digits: cutting them off would date a refund before its own request."""
    value = entry.get(name)
    if value is None:
        return None
    try:
        moment = clock.parse_rfc3339(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise BadAnswer(f"{name}: no time")
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _short(entry: Json, name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise BadAnswer(f"{name}: no text")
    return _cut(value, MAX_SHORT)


def _note(entry: Json) -> str:
    value = entry.get("note")
    if value is not None and not isinstance(value, str):
        raise BadAnswer("note: no text")
    return _cut(value or "", MAX_NOTE)


def _cut(text: str, limit: int) -> str:
    # Cut first and once more: making text storable may make it six times as long.
    clean = storable(text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - len(CUT)] + CUT


def _metadata(entry: Json) -> Json | None:
    value = entry.get("metadata")
    if value is not None and not isinstance(value, dict):
        raise BadAnswer("metadata: no object")
    return None if value is None else {_cut(k, MAX_SHORT): _storable_json(v) for k, v in value.items()}


def _storable_json(value: Any) -> Any:
    """A copy that any database and the canonical form take."""
    if isinstance(value, str):
        return _cut(value, MAX_SHORT)
    if isinstance(value, dict):
        return {_cut(k, MAX_SHORT): _storable_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_storable_json(item) for item in value]
    return str(value) if isinstance(value, int) and abs(value) > MAX_SAFE_INT else value
