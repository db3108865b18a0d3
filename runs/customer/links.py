"""Door: the customer's link, signed and expiring. A pure function of the run, the day it ends and the site's key.

It names the run and its own end, nothing of the customer, and cannot be guessed. Imports no store and no rows.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core import signing
from django.utils.crypto import constant_time_compare

from agentsite import clock, env

MAX_CHARS = 200
_SALT = "runs.customer.link"
_FORM_SALT = "runs.customer.form"


@dataclass(frozen=True, kw_only=True)
class Link:
    """What a good link says."""

    run_id: uuid.UUID
    ends_at: int


def token(run_id: uuid.UUID, created_at: datetime) -> str:
    """The link's secret part: good until CUSTOMER_LINK_DAYS after the run's admission."""
    ends_at = int((created_at + timedelta(days=env.read().CUSTOMER_LINK_DAYS)).timestamp())
    raw = run_id.bytes + ends_at.to_bytes(8, "big")
    return _signer(_SALT).sign(base64.urlsafe_b64encode(raw).decode())


def url(run_id: uuid.UUID, created_at: datetime) -> str:
    return f"{env.read().public_url}/c/{token(run_id, created_at)}/"


def read(given: str) -> Link | None:
    """What a link says; None for one that is wrong, cut or over, and nobody is told which."""
    try:
        raw = base64.urlsafe_b64decode(_signer(_SALT).unsign(given[:MAX_CHARS]))
    except (signing.BadSignature, binascii.Error, ValueError):
        return None
    link = Link(run_id=uuid.UUID(bytes=raw[:16]), ends_at=int.from_bytes(raw[16:], "big"))
    return link if clock.now().timestamp() < link.ends_at else None


def form(run_id: uuid.UUID, message_id: str) -> str:
    """The one-time field of a form: the id its message will have, signed for this run. Needs no cookie."""
    signed = _signer(_FORM_SALT).signature(f"{run_id.hex}/{message_id}")
    return f"{message_id}.{signed}"


def read_form(run_id: uuid.UUID, given: str) -> str | None:
    """The message id of a form that we made for this run, else None."""
    message_id = given.partition(".")[0]
    return message_id if given and constant_time_compare(form(run_id, message_id), given) else None


def _signer(salt: str) -> signing.Signer:
    return signing.Signer(sep=".", salt=salt)
