"""Money: an integer of minor units and an ISO 4217 code. Never a float, never two currencies in one sum.

On every wire it is `{"amount": "2000.00", "currency": "INR"}` with exactly the currency's decimals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import babel.numbers
from iso4217 import Currency

AMOUNT = re.compile(r"(0|[1-9][0-9]{0,14})(\.([0-9]{1,6}))?")


class BadMoney(ValueError):
    """A wire amount that is not one; `field` is `amount` or `currency`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class CurrencyMismatch(ValueError):
    """Two currencies in one sum or comparison: our own bug, or a world the gate must refuse."""


@lru_cache(maxsize=256)
def exponent(currency: str) -> int:
    """Decimals of a currency: JPY 0, INR 2, KWD 3. Raises BadMoney for a code that is none."""
    try:
        known = Currency(currency)
    except ValueError:
        raise BadMoney("currency", "expected an ISO 4217 code") from None
    if known.exponent is None:
        raise BadMoney("currency", "this code has no minor unit")
    return int(known.exponent)


@dataclass(frozen=True, kw_only=True, slots=True, order=False)
class Money:
    """An amount in minor units (`200000` is 2,000.00 INR). May be negative as a difference."""

    minor: int
    currency: str

    def __post_init__(self) -> None:
        assert type(self.minor) is int, "minor units are an integer"

    def _same(self, other: Money) -> None:
        if self.currency != other.currency:
            raise CurrencyMismatch(f"{self.currency} and {other.currency}")

    def __add__(self, other: Money) -> Money:
        self._same(other)
        return Money(minor=self.minor + other.minor, currency=self.currency)

    def __sub__(self, other: Money) -> Money:
        self._same(other)
        return Money(minor=self.minor - other.minor, currency=self.currency)

    def __le__(self, other: Money) -> bool:
        self._same(other)
        return self.minor <= other.minor

    def __lt__(self, other: Money) -> bool:
        self._same(other)
        return self.minor < other.minor

    def __gt__(self, other: Money) -> bool:
        return not self <= other

    def __ge__(self, other: Money) -> bool:
        return not self < other

    def amount(self) -> str:
        """The decimal string with exactly the currency's decimals: `2000.00`, `500`, `1.250`."""
        digits = exponent(self.currency)
        sign, whole = ("-", -self.minor) if self.minor < 0 else ("", self.minor)
        if digits == 0:
            return f"{sign}{whole}"
        return f"{sign}{whole // 10**digits}.{whole % 10**digits:0{digits}d}"

    def wire(self) -> dict[str, str]:
        return {"amount": self.amount(), "currency": self.currency}

    def __str__(self) -> str:
        """For people: the currency's own decimals and grouping, with its code, as `2,000.00 INR`."""
        number = babel.numbers.format_decimal(
            _decimal(self.minor, exponent(self.currency)),
            format="#,##0" + ("." + "0" * exponent(self.currency) if exponent(self.currency) else ""),
            locale="en",
        )
        return f"{number} {self.currency}"


def _decimal(minor: int, digits: int) -> Any:
    from decimal import Decimal

    return Decimal(minor).scaleb(-digits)


def zero(currency: str) -> Money:
    return Money(minor=0, currency=currency)


def total(amounts: list[Money], currency: str) -> Money:
    """The sum in one currency. Raises CurrencyMismatch where one differs."""
    result = zero(currency)
    for amount in amounts:
        result = result + amount
    return result


def parse(wire: object) -> Money:
    """Money from its wire object. Raises BadMoney that names the field; never rounds, never coerces."""
    if not isinstance(wire, dict) or set(wire) != {"amount", "currency"}:
        raise BadMoney("amount", "expected an object with amount and currency")
    return from_parts(wire["amount"], wire["currency"])


def from_parts(amount: object, currency: object) -> Money:
    """Money from a decimal string and a code. Raises BadMoney."""
    if not isinstance(currency, str):
        raise BadMoney("currency", "expected an ISO 4217 code")
    digits = exponent(currency)
    match = AMOUNT.fullmatch(amount) if isinstance(amount, str) and amount.isascii() else None
    if match is None:
        raise BadMoney("amount", "expected a decimal amount")
    decimals = match.group(3) or ""
    if len(decimals) > digits:
        raise BadMoney("amount", f"expected a decimal amount with at most {digits} decimals")
    return Money(minor=int(match.group(1) + decimals.ljust(digits, "0")), currency=currency)
