"""Arguments of tools as strict models: money, ids, text for records and text for people. A paper: pure values.

A field that is not declared is an error, nothing is coerced, and what is invisible is written out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from agentsite import money
from agentsite.money import BadMoney, Money
from agentsite.text import storable, visible

ID = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")
PASSAGES, MOST_PASSAGES = 3, 8
AN_ID = "an id of letters, digits and _.:@/-"
AN_AMOUNT = "a decimal amount"
A_CODE = "an ISO 4217 code"


def _expected(text: str, field: str = "") -> PydanticCustomError:
    return PydanticCustomError("expected", "{expected}", {"expected": text, "field": field})


def _id(value: object) -> object:
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise _expected(AN_ID)
    return value


def text_up_to(limit: int, shown: Callable[[str], str] = visible) -> BeforeValidator:
    def check(value: object) -> object:
        # Twice: writing out an invisible character may leave letters before an accent that NFC then joins.
        text = shown(shown(value)) if isinstance(value, str) else ""
        if not text.strip() or len(text) > limit:
            raise _expected(f"text of 1 to {limit} characters")
        return text

    return BeforeValidator(check)


def prose(text: str) -> str:
    """Text for a person to read: line breaks stay."""
    return storable(unicodedata.normalize("NFC", text))


def _amount(value: object) -> object:
    if not isinstance(value, str) or not value.isascii() or not money.AMOUNT.fullmatch(value):
        raise _expected(AN_AMOUNT)
    return value


def _currency(value: object) -> object:
    try:
        money.exponent(value if isinstance(value, str) else "")
    except BadMoney:
        raise _expected(A_CODE) from None
    return value


class Arguments(BaseModel):
    """Strict and closed: a field that is not declared is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Id = Annotated[str, BeforeValidator(_id), Field(json_schema_extra={"pattern": f"^{ID.pattern}$"})]


class Amount(Arguments):
    """A decimal string in major units, never a number, and its currency."""

    amount: Annotated[str, BeforeValidator(_amount), Field(description="decimal string in major units, as 2000.00")]
    currency: Annotated[str, BeforeValidator(_currency), Field(description="ISO 4217 code, as INR")]

    @model_validator(mode="after")
    def fits_its_currency(self) -> Amount:
        try:
            minor = self.money().minor
        except BadMoney as error:
            raise _expected(str(error).removeprefix("expected "), error.field) from None
        if minor <= 0:
            raise _expected(f"{AN_AMOUNT} above 0", "amount")
        return self

    def money(self) -> Money:
        return money.from_parts(self.amount, self.currency)


class OfOrder(Arguments):
    order_id: Id


class Query(Arguments):
    query: Annotated[str, text_up_to(500), Field(min_length=1, max_length=500)]
    limit: Annotated[int, Field(ge=1, le=MOST_PASSAGES, description="passages at most")] = PASSAGES


class Message(Arguments):
    text: Annotated[str, text_up_to(600, prose), Field(min_length=1, max_length=600)]


class Question(Arguments):
    question: Annotated[str, text_up_to(600, prose), Field(min_length=1, max_length=600)]


class Plan(Arguments):
    steps: Annotated[list[Annotated[str, text_up_to(200)]], Field(min_length=1, max_length=10)]


class Reason(Arguments):
    reason: Annotated[str, text_up_to(500), Field(min_length=1, max_length=500)]


class RefundArguments(Arguments):
    order_id: Id
    payment_id: Id
    amount: Amount
    reason: Annotated[str, text_up_to(200), Field(min_length=1, max_length=200)]
