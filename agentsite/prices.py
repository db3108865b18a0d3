"""What a model's tokens cost: the table of MODEL_PRICES, read strictly, and exact sums made of it. No float anywhere.

A price is a decimal string per million tokens, which is as many micro-units of the currency per token. Imports nothing
of the runs: a call's cap and what is left of it are theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agentsite import money
from agentsite.canonical import NotStrictJson, strict_loads
from agentsite.money import Money

FREE = ("offline", "scripted")
"""Providers within this process: nobody is paid."""
MICRO_DIGITS = 6
MAX_TABLE_BYTES = 1024 * 1024


def _currency(code: str) -> str:
    money.exponent(code)
    return code


Amount = Annotated[str, Field(strict=True, pattern=r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,12})?$")]
Currency = Annotated[str, Field(strict=True), AfterValidator(_currency)]
ModelName = Annotated[str, Field(strict=True, min_length=1, max_length=200)]


class ModelPrice(BaseModel):
    """One model's prices per million tokens. Input read from the provider's cache costs as any other where nothing is
    said; where writing into that cache costs more, `input` is that price."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Amount
    cached: Amount | None = None
    output: Amount


class PriceTable(BaseModel):
    """Prices by route (`PROVIDER:MODEL`) or by the name a model answers under, in one currency."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: Currency
    models: dict[ModelName, ModelPrice]


@dataclass(frozen=True, kw_only=True)
class Price:
    """Micro-units of the currency per token, exactly."""

    currency: str
    input: Fraction
    cached: Fraction
    output: Fraction

    @property
    def dearest_input(self) -> Fraction:
        """What a token of the prompt may cost at most."""
        return max(self.input, self.cached)

    @property
    def costs(self) -> bool:
        return any((self.input, self.cached, self.output))


def document(text: str) -> object:
    """The JSON of a table: the text itself, or of the file it names. Raises ValueError, which repeats neither."""
    try:
        raw = text if text.lstrip().startswith("{") else _file(Path(text))
        return strict_loads(raw)
    except (OSError, UnicodeDecodeError):
        raise ValueError("expected JSON, or the path of a JSON file that can be read") from None
    except NotStrictJson:
        raise ValueError("no strict JSON") from None


def _file(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_TABLE_BYTES).decode()


def is_free(route: str) -> bool:
    """Whether a route calls nobody who would want money."""
    return route.partition(":")[0] in FREE


def price_of(table: PriceTable | None, route: str, answered: str = "") -> Price | None:
    """The price of a route, or of the model that really answered where it has one of its own; None: none is known."""
    if table is None or is_free(route):
        return None
    provider = route.partition(":")[0]
    names = (f"{provider}:{answered}", answered, route) if answered else (route, route.partition(":")[2])
    found = next((table.models[name] for name in names if name in table.models), None)
    if found is None:
        return None
    return Price(
        currency=table.currency, input=Fraction(found.input), output=Fraction(found.output),
        cached=Fraction(found.input if found.cached is None else found.cached),
    )  # fmt: skip


def cost_micros(
    table: PriceTable | None, route: str, answered: str, *, input: int, cached: int, output: int
) -> int | None:
    """What a call cost in micro-units of the table's currency, rounded up; `cached` tokens are part of `input`.

    0 for a model within this process; None where no price is known.
    """
    if is_free(route):
        return 0
    price = price_of(table, route, answered)
    if price is None:
        return None
    hit = min(cached, input)
    return math.ceil((input - hit) * price.input + hit * price.cached + output * price.output)


def micros(amount: Money) -> int:
    """An amount in micro-units of its currency."""
    return amount.minor * int(10 ** (MICRO_DIGITS - money.exponent(amount.currency)))
