"""Floor: the console's sign-in form, which makes whoever guesses a password wait. May import no domain package.

A try is counted before the password is looked at, in one row a user name and address, so that guesses side by side
count too; the row holds a hash. It slows one address guessing at one name, whatever process it reaches. Guesses spread
over many addresses are not slowed: nobody can lock a member of staff out from elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.exceptions import ValidationError
from django.db import transaction

from agentsite import clock, telemetry
from agentsite.tenants.models import SignInTries

FREE = 5
"""Tries before the first wait; every further one doubles it."""
LONGEST_S = 900.0
FORGET = timedelta(days=1)


class Form(AdminAuthenticationForm):
    """Django's own, with a wait after too many wrong tries."""

    def clean(self) -> dict[str, Any]:
        key = _key(str(self.cleaned_data.get("username", "")), self._address())
        left = begin(key)
        if left > 0:
            telemetry.count("signins_held")
            raise ValidationError(f"Too many tries. Wait {left:.0f} s, then try again.", code="too-many-tries")
        cleaned: dict[str, Any] = super().clean()
        SignInTries.objects.filter(pk=key).delete()
        return cleaned

    def _address(self) -> str:
        return str(self.request.META.get("REMOTE_ADDR", "")) if self.request is not None else ""


def _key(name: str, address: str) -> str:
    """Nothing of a name stays readable: people type passwords into the wrong field."""
    words = f"{name.casefold().strip()}\n{address}".encode()
    return hmac.new(settings.SECRET_KEY.encode(), b"sign-in\n" + words, hashlib.sha256).hexdigest()


def begin(key: str) -> float:
    """Counts a try; the seconds it still has to wait, 0 where it may go on."""
    now = clock.now()
    with transaction.atomic():
        SignInTries.objects.bulk_create([SignInTries(pk=key, until=now, at=now)], ignore_conflicts=True)
        row = SignInTries.objects.select_for_update().get(pk=key)
        if row.until > now:
            return max(1.0, (row.until - now).total_seconds())
        tries = row.tries + 1 if row.at > now - FORGET else 1
        SignInTries.objects.filter(pk=key).update(tries=tries, at=now, until=now + timedelta(seconds=_wait_s(tries)))
    return 0.0


def _wait_s(tries: int) -> float:
    return min(LONGEST_S, float(2 ** min(tries - FREE, 20))) if tries >= FREE else 0.0


def forget(before: datetime) -> int:
    """Drop what nobody tried since then; how many rows."""
    gone, _ = SignInTries.objects.filter(at__lt=before).delete()
    return gone
