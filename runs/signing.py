"""Control: signs webhooks as Standard Webhooks says, with the keys of the tenant. Imports no zone.

Several keys make several signatures: a receiver takes the old one and the new one while a key is changed. A key never
stands in a log, on a page or in a row; `manage.py webhook_secret` alone shows the derived one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import datetime

from django.conf import settings
from pydantic import ValidationError
from standardwebhooks.webhooks import Webhook

from agentsite import env, redaction
from agentsite.tenants.models import current_profile

PREFIX = "whsec_"
LEAST_BYTES = 16
MOST_KEYS = 5


class NoKey(Exception):
    """There is no usable key; the message is a slug."""


def variable(tenant_id: str, agent: str) -> str | None:
    """The variable that holds the tenant's keys; None where they are derived. Raises NoKey for a broken profile."""
    try:
        profile = current_profile(tenant_id, agent)
    except ValidationError:
        raise NoKey("profile_invalid") from None
    return profile.webhook_secret_env if profile is not None else None


def keys(tenant_id: str, agent: str) -> tuple[str, ...]:
    """The tenant's keys, the newest first, as a receiver's library takes them. Raises NoKey."""
    name = variable(tenant_id, agent)
    if name is None:
        return (_derived(tenant_id),)
    value = env.secret(name)
    given = [part.strip() for part in (value.get_secret_value() if value else "").split(",") if part.strip()]
    if not given:
        raise NoKey("key_missing")
    if len(given) > MOST_KEYS or not all(map(_sound, given)):
        raise NoKey("key_malformed")
    redaction.keep(*given)
    return tuple(given)


def headers(tenant_id: str, agent: str, *, webhook_id: str, body: str, at: datetime) -> dict[str, str]:
    """The three headers of Standard Webhooks for one try, made at `at`. Raises NoKey."""
    signed = [Webhook(key).sign(webhook_id, at, body) for key in keys(tenant_id, agent)]
    return {
        "webhook-id": webhook_id, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": " ".join(signed),
    }  # fmt: skip


def _derived(tenant_id: str) -> str:
    made = hmac.new(settings.SECRET_KEY.encode(), b"agentsite.webhooks:" + tenant_id.encode(), hashlib.sha256)
    key = PREFIX + base64.b64encode(made.digest()).decode()
    redaction.keep(key)
    return key


def _sound(key: str) -> bool:
    """Whether a receiver's library reads it as we do: base64 of at least sixteen bytes."""
    try:
        return len(base64.b64decode(key.removeprefix(PREFIX) + "==", validate=False)) >= LEAST_BYTES
    except (binascii.Error, ValueError):
        return False
