"""What a tenant's agent may ever do: the profile file of the contract, section 7, as strict types.

A paper: pure values, no Django. An unknown or misspelt field refuses the profile (ValidationError names it).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from agentsite import money
from agentsite.money import Money
from agentsite.text import has_forbidden

TENANT_ID = re.compile(r"[a-z0-9_]{1,64}")
POLICY_PIN = re.compile(r"[A-Za-z0-9_.-]{1,64}@v[1-9][0-9]{0,5}")
Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Positive = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
MOST_PHRASES = 3000


def _money(value: object) -> Money:
    try:
        return value if isinstance(value, Money) else money.parse(value)
    except money.BadMoney as error:
        raise ValueError(f"{error.field}: {error}") from None


def _phrase(text: str) -> str:
    if has_forbidden(text) or not any(char.isalnum() for char in text):
        raise ValueError("a phrase holds a letter, no NUL and no lone surrogate")
    return text


Phrase = Annotated[str, Field(strict=True, min_length=2, max_length=80), AfterValidator(_phrase)]
Phrases = Annotated[tuple[Phrase, ...], Field(max_length=1000)]
Language = Annotated[str, Field(strict=True, pattern=r"^[a-z]{2,3}(-[a-z0-9]{2,8})?$")]
SecretName = Annotated[str, Field(strict=True, pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
Email = Annotated[str, Field(strict=True, max_length=254, pattern=r"^[^@\s,;<>]+@[^@\s,;<>]+$")]
Variable = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
WireMoney = Annotated[Money, BeforeValidator(_money), PlainSerializer(lambda m: m.wire())]


class Paper(BaseModel):
    """Frozen, and strict about fields it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class CurrencyRule(Paper):
    """Ceilings of one write tool in one currency, as decimal strings in that currency."""

    max_amount: str
    requires_approval_above: str
    two_people_above: str | None = None


class WriteGrant(Paper):
    """A write tool's rules by currency; a currency without an entry may not be written in."""

    by_currency: dict[str, CurrencyRule]

    @model_validator(mode="after")
    def amounts_fit_their_currency(self) -> WriteGrant:
        for currency, rule in self.by_currency.items():
            for name, amount in rule.model_dump(exclude_none=True).items():
                try:
                    money.from_parts(amount, currency)
                except money.BadMoney as error:
                    raise ValueError(f"by_currency.{currency}.{name}: {error}") from None
        return self

    def rule(self, currency: str) -> tuple[Money, Money, Money | None] | None:
        """(ceiling, approval threshold, two-people threshold) in that currency, or None."""
        rule = self.by_currency.get(currency)
        if rule is None:
            return None
        two = money.from_parts(rule.two_people_above, currency) if rule.two_people_above is not None else None
        return (
            money.from_parts(rule.max_amount, currency),
            money.from_parts(rule.requires_approval_above, currency),
            two,
        )


class Limits(Paper):
    """Caps of one run. `deadline_ms` counts active time only."""

    max_model_calls: Positive = 12
    deadline_ms: Positive = 30_000
    max_write_attempts: Positive = 2
    max_input_tokens: Positive = 60_000
    max_output_tokens: Positive = 8_000
    max_cost: WireMoney = Money(minor=100, currency="USD")


class Total(Paper):
    """How many writes, and how much in sum, in one window."""

    count: Positive
    amount: str


class Totals(Paper):
    customer_day: Total | None = None
    tenant_hour: Total | None = None


class Commerce(Paper):
    """Where a tenant's business system is, which environment variables hold its two credentials, what it promises."""

    url: str = Field(pattern=r"^https?://")
    read_token_env: str
    write_token_env: str
    honours_keys: bool = False
    key_life_s: float = Field(86400, gt=0)
    settle_s: float | None = Field(30, ge=0)

    @model_validator(mode="after")
    def two_credentials(self) -> Commerce:
        if self.read_token_env == self.write_token_env:
            raise ValueError("write_token_env: reads and writes need two credentials, never one")
        return self


class SensitiveWords(Paper):
    """A language's phrases: `person` brings the run to a person before any model call, `approval` makes every write
    need one (M116). None leaves the shipped list of the language as it is, an empty list takes it away."""

    person: Phrases | None = None
    approval: Phrases | None = None


def _not_too_many(lists: dict[str, SensitiveWords]) -> dict[str, SensitiveWords]:
    given = [phrases for words in lists.values() for phrases in (words.person, words.approval) if phrases is not None]
    if sum(map(len, given)) > MOST_PHRASES:
        raise ValueError(f"at most {MOST_PHRASES} phrases in all: every run keeps a copy of them")
    return lists


class Notify(Paper):
    """Who is told of approvals besides `queue_owner`: addresses, and the variable that holds a chat webhook's URL."""

    email: Annotated[tuple[Email, ...], Field(max_length=20)] = ()
    webhook_env: Variable | None = None


class Retention(Paper):
    """Days that a class of data of ended runs is kept; it may only shorten the site's own."""

    conversation_days: Positive | None = None
    evidence_days: Positive | None = None
    deliveries_days: Positive | None = None


class Memory(Paper):
    """What a run may know of earlier ones. `session`: those of the same customer's session stand before it as
    precedents (M100); cases of the past are a read tool, granted like any other."""

    session: Annotated[bool, Field(strict=True)] = False


class Profile(Paper):
    """A profile file. Source of every grant; frozen into a run at admission."""

    agent: str = Field("refunds", pattern=r"^[a-z0-9_]{1,64}$")
    read_tools: tuple[str, ...]
    write_tools: dict[str, WriteGrant] = {}
    people_tools: tuple[str, ...] = ("message", "ask", "plan", "escalate")
    blocked_tools: tuple[str, ...] = ()
    limits: Limits = Limits()
    policy_pin: str = Field(pattern=POLICY_PIN.pattern)
    approval_ttl_s: Positive = 86_400
    approved_ttl_s: Positive = 3_600
    queue_owner: str = ""
    aggregates: dict[str, Totals] = {}
    manual_qualification: bool = True
    commerce: Commerce | None = None
    sensitive: Annotated[dict[Language, SensitiveWords], Field(max_length=30), AfterValidator(_not_too_many)] = {}
    secrets: Annotated[dict[SecretName, Variable], Field(max_length=50)] = {}
    """Placeholder names to the environment variables that hold what they stand for (M71)."""
    notify: Notify = Notify()
    attestation: Annotated[str, Field(strict=True, max_length=500)] = ""
    """What an approver must state with a yes ("I checked ..."); bound into his decision (M117)."""
    retention: Retention = Retention()
    memory: Memory = Memory()
    webhook_secret_env: Variable | None = None
    """The variable with the key that signs this tenant's webhooks; without it a key is derived."""

    @model_validator(mode="after")
    def totals_fit_their_currency(self) -> Profile:
        for currency, totals in self.aggregates.items():
            for name, window in (("customer_day", totals.customer_day), ("tenant_hour", totals.tenant_hour)):
                if window is None:
                    continue
                try:
                    money.from_parts(window.amount, currency)
                except money.BadMoney as error:
                    raise ValueError(f"aggregates.{currency}.{name}.amount: {error}") from None
        return self


Agent = Literal["refunds"]


def parse(document: Any) -> Profile:
    """A profile from JSON data. Raises pydantic.ValidationError that names each field at fault."""
    return Profile.model_validate(document)
