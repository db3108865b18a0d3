"""Money as integer minor units; the sandbox's own, because it may share no code with the project it judges."""

import re
from dataclasses import dataclass

from tools.sandbox.refusals import Document, invalid

EXPONENTS = {"JPY": 0, "KRW": 0, "BHD": 3, "JOD": 3, "KWD": 3, "OMR": 3, "TND": 3}
"""Decimals of the currencies that have not two."""

_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,14})(?:\.([0-9]{1,3}))?")
_CURRENCY = re.compile(r"[A-Z]{3}")


@dataclass(frozen=True, kw_only=True)
class Money:
    """An amount in minor units (paise, cents) of an ISO 4217 currency."""

    minor: int
    currency: str

    def document(self) -> Document:
        """The wire form, with exactly the currency's decimals."""
        decimals = EXPONENTS.get(self.currency, 2)
        whole, part = divmod(self.minor, 10**decimals)
        text = f"{whole}.{part:0{decimals}d}" if decimals else str(whole)
        return {"amount": text, "currency": self.currency}


def parse_money(value: object, field: str, *, exact: bool = True) -> Money:
    """Money from its wire form; raises `Refused` 400.

    `exact` asks for all of the currency's decimals, as the interface does; seeds may leave trailing ones out.
    """
    if not isinstance(value, dict) or set(value) != {"amount", "currency"}:
        raise invalid(f"{field}: an object with amount and currency is expected")
    currency = value["currency"]
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise invalid(f"{field}.currency: an ISO 4217 code is expected")
    return Money(minor=_minor(value["amount"], currency, field, exact=exact), currency=currency)


def _minor(amount: object, currency: str, field: str, *, exact: bool) -> int:
    found = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    if found is None:
        raise invalid(f"{field}.amount: a decimal text in major units is expected")
    decimals = EXPONENTS.get(currency, 2)
    part = found[2] or ""
    if len(part) > decimals or (exact and len(part) != decimals):
        raise invalid(f"{field}.amount: {currency} has {decimals} decimals")
    return int(found[1] + part.ljust(decimals, "0"))
