"""The only reader of the environment: typed, loud, and it never echoes a bad value.

Twelve-factor configuration. Everything has a default that works on a laptop with nothing installed; a wrong value
stops the start with one line that names the variable.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from agentsite import prices
from agentsite.prices import PriceTable

ROOT = Path(__file__).resolve().parent.parent
PROVIDERS = ("openai", "anthropic", "anthropic_xml", "offline", "scripted")
RATE = re.compile(r"^[1-9][0-9]{0,8}/(s|sec|m|min|h|hour|d|day)$")
EMBEDDINGS = re.compile(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?\Z", re.IGNORECASE)
Seconds = Annotated[float, Field(gt=0, le=10_000_000)]


class BadEnvironment(SystemExit):
    """A configuration that cannot be started; carries the one line to print."""


def _comma_list(value: object) -> object:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


class ModelEnvironment(BaseSettings):
    """What concerns models and their turns: routes and keys, bounds of a call, a prompt and the loop, prices."""

    AGENT_MODELS: Annotated[list[str], NoDecode] = ["offline:investigator"]
    OPENAI_BASE_URL: str = ""
    OPENAI_API_KEY: SecretStr | None = None
    ANTHROPIC_BASE_URL: str = ""
    ANTHROPIC_API_KEY: SecretStr | None = None
    MODEL_TIMEOUT_S: Seconds = 60
    MODEL_SILENCE_S: Seconds = 45
    MODEL_STREAM: bool = True
    MODEL_TRIES: int = Field(300, ge=1, le=1_000_000)
    MODEL_MAX_OUTPUT_TOKENS: int = Field(4096, ge=1, le=1_000_000)
    MODEL_WINDOW_TOKENS: int = Field(32_000, ge=4_000, le=10_000_000)
    MODEL_TAIL_TOKENS: int = Field(8_000, ge=500, le=10_000_000)
    LOOP_REMIND_AT: int = Field(2, ge=1, le=100)
    LOOP_STOP_AT: int = Field(4, ge=2, le=1000)
    TOOLS_BLOCKED: Annotated[list[str], NoDecode] = []
    MODEL_PRICES: Annotated[PriceTable | None, NoDecode] = None
    EMBEDDINGS_URL: str = ""
    """An OpenAI-compatible endpoint, such as https://models.example/v1/embeddings; its last step may be left out."""
    EMBEDDINGS_MODEL: str = Field("", max_length=200)
    EMBEDDINGS_API_KEY: SecretStr | None = None
    EMBEDDINGS_TIMEOUT_S: Seconds = 3
    """What a search waits for the vector of its question, before it goes by words alone."""

    @field_validator("AGENT_MODELS", "TOOLS_BLOCKED", mode="before")
    @classmethod
    def split_names(cls, value: object) -> object:
        return _comma_list(value)

    @field_validator("MODEL_PRICES", mode="before")
    @classmethod
    def price_table(cls, value: object) -> object:
        return prices.document(value) if isinstance(value, str) else value

    @field_validator("AGENT_MODELS")
    @classmethod
    def known_providers(cls, value: list[str]) -> list[str]:
        for route in value:
            provider, _, model = route.partition(":")
            if provider not in PROVIDERS or not model:
                raise ValueError(f"a route is PROVIDER:MODEL with PROVIDER one of {', '.join(PROVIDERS)}")
        if not value:
            raise ValueError("at least one route is needed")
        return value

    @field_validator("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")
    @classmethod
    def base_url(cls, value: str) -> str:
        if value and not re.match(r"^https?://[^/?#\s]+[^?#\s]*$", value, re.I):
            raise ValueError("must begin with https:// or http:// and hold no query")
        return value

    @field_validator("EMBEDDINGS_URL")
    @classmethod
    def embeddings_url(cls, value: str) -> str:
        if value and not EMBEDDINGS.match(value):
            raise ValueError("must begin with https:// or http:// and hold no credentials and no query")
        return f"{value.rstrip('/').removesuffix('/embeddings')}/embeddings" if value else ""

    @model_validator(mode="after")
    def embeddings_whole_or_not_at_all(self) -> Self:
        if bool(self.EMBEDDINGS_URL) != bool(self.EMBEDDINGS_MODEL.strip()):
            raise ValueError("EMBEDDINGS_URL and EMBEDDINGS_MODEL: both or none")
        key = self.EMBEDDINGS_API_KEY.get_secret_value() if self.EMBEDDINGS_API_KEY else ""
        if self.EMBEDDINGS_URL and re.search(r"[^!-~]", key):
            raise ValueError("EMBEDDINGS_API_KEY: holds a character that no HTTP header carries")
        return self

    @model_validator(mode="after")
    def remind_before_the_stop(self) -> Self:
        if self.LOOP_STOP_AT <= self.LOOP_REMIND_AT:
            raise ValueError("LOOP_STOP_AT must be above LOOP_REMIND_AT, so that a reminder comes first")
        return self


class OutsideEnvironment(BaseSettings):
    """What concerns people and programs outside: links, mail, webhooks, sign-in, how long their data is kept."""

    PUBLIC_URL: str = ""
    """How the world reaches this site, such as https://agent.example; links to people and clients begin with it."""
    CUSTOMER_LINK_DAYS: int = Field(30, ge=1, le=3650)
    EMAIL_URL: SecretStr | None = None
    """smtp://USER:PASSWORD@HOST:PORT, smtps:// for TLS from the start; without one, notices by mail are not sent."""
    EMAIL_FROM: str = "agentsite@localhost"
    NOTIFY_WEBHOOK_URL: SecretStr | None = None
    NOTIFY_DIGEST_S: Seconds = 86_400
    WEBHOOK_PRIVATE_HOSTS: Annotated[list[str], NoDecode] = []
    """Hosts, HOST or HOST:PORT, that webhooks may reach though they are private or plain http."""
    WEBHOOK_TIMEOUT_S: Seconds = 10
    WEBHOOK_FIRST_WAIT_S: Seconds = 5
    WEBHOOK_TRIES: int = Field(12, ge=1, le=100)
    RETAIN_CONVERSATION_DAYS: int = Field(365, ge=1, le=36_500)
    RETAIN_EVIDENCE_DAYS: int = Field(365, ge=1, le=36_500)
    RETAIN_DELIVERIES_DAYS: int = Field(90, ge=1, le=36_500)
    OTEL_EXPORTER_OTLP_ENDPOINT: str = ""
    """Where spans go by OTLP over HTTP, such as http://127.0.0.1:4318; needs the extra `otel`. None: no spans."""
    OTEL_SERVICE_NAME: str = Field("agentsite", min_length=1, max_length=200)
    OIDC_ISSUER: str = ""
    OIDC_CLIENT_ID: str = ""
    OIDC_CLIENT_SECRET: SecretStr | None = None
    OIDC_GROUPS_CLAIM: str = Field("groups", min_length=1)
    OIDC_SCOPES: str = "openid profile email"

    @field_validator("WEBHOOK_PRIVATE_HOSTS", mode="before")
    @classmethod
    def split_hosts(cls, value: object) -> object:
        return _comma_list(value)

    @field_validator("PUBLIC_URL", "OIDC_ISSUER", "OTEL_EXPORTER_OTLP_ENDPOINT")
    @classmethod
    def site_url(cls, value: str) -> str:
        if value and not re.match(r"^https?://[^/?#\s]+[^?#\s]*$", value, re.I):
            raise ValueError("must begin with https:// or http:// and hold no query")
        return value.rstrip("/")

    @field_validator("OIDC_SCOPES")
    @classmethod
    def scopes(cls, value: str) -> str:
        if "openid" not in value.split():
            raise ValueError("needs the scope openid")
        return value

    @model_validator(mode="after")
    def sign_in_whole_or_not_at_all(self) -> Self:
        given = [name for name in ("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET") if getattr(self, name)]
        if given and len(given) < 3:
            raise ValueError("OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET: all three or none")
        local = urlsplit(self.OIDC_ISSUER).hostname in ("127.0.0.1", "localhost", "::1")
        if self.OIDC_ISSUER.startswith("http:") and not local:
            raise ValueError("OIDC_ISSUER: must begin with https://, unless it is on this machine")
        return self

    @property
    def oidc(self) -> bool:
        """Whether staff may sign in through the company's identity provider."""
        return bool(self.OIDC_ISSUER)


class Environment(OutsideEnvironment, ModelEnvironment):
    """Every variable we read. Periods are seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(extra="ignore", case_sensitive=True, env_ignore_empty=True)

    DATABASE_URL: str | None = None
    BROKER_URL: str = "memory://"
    VAR_DIR: Path = ROOT / "var"
    ANCHOR_LOG: Path | None = None
    HEADS_LOG: Path | None = None
    PORT: int = Field(8080, ge=0, le=65535)
    BIND: str = "127.0.0.1"
    DEBUG: bool = False
    INSECURE_HTTP: bool = False
    SECRET_KEY: SecretStr | None = None
    ALLOWED_HOSTS: Annotated[list[str], NoDecode] = ["127.0.0.1", "localhost", "[::1]"]
    CSRF_TRUSTED_ORIGINS: Annotated[list[str], NoDecode] = []
    THROTTLE_RUNS: str = "600/min"
    THROTTLE_READS: str = "3000/min"
    STREAMS_PER_CALLER: int = Field(1000, ge=1, le=100_000)
    RELEASE: str = ""
    LOG_FORMAT: Literal["json", "console"] = "json"
    AUDIT_KEY: SecretStr | None = None
    SECRETS_ELSEWHERE: Annotated[list[str], NoDecode] = []
    """SHA-256 of secrets this process must not hold, so that it knows one when it sees it; its parent sets it."""

    COMMERCE_URL: str = "http://127.0.0.1:8090"
    COMMERCE_READ_TOKEN: SecretStr = SecretStr("sandbox-read")
    COMMERCE_WRITE_TOKEN: SecretStr | None = SecretStr("sandbox-write")
    COMMERCE_HONOURS_KEYS: bool = False
    COMMERCE_KEY_LIFE_S: Seconds = 86400
    COMMERCE_SETTLE_S: float | None = Field(30, ge=0)

    AGENT_PASSES_PER_TASK: int = Field(1, ge=1, le=50)
    LEASE_S: Seconds = 15
    SWEEP_S: Seconds = 1
    PENDING_POLL_S: Seconds = 30
    CALL_TIMEOUT_S: Seconds = 8
    WRITE_TIMEOUT_S: Seconds = 20
    RESEND_FOR_S: Seconds = 3600
    RECONCILE_FOR_S: Seconds = 1800
    VERIFY_FOR_S: Seconds = 600
    RETRY_S: Seconds = 2
    DEPENDENCY_FOR_S: Seconds = 86400
    REPLY_FOR_S: Seconds = 259200
    ASK_AGAIN_FOR_S: Seconds = 604800
    WATCH_DAY_S: Seconds = 86400
    EVIDENCE_FRESH_S: Seconds = 900
    """A read older than this is made again, and compared by its hash, before it supports a decision (M123)."""
    SHADOW_COMPARE_S: Seconds = 86400
    """How long after a run of a tenant in shadow mode was handed over its proposal is compared with what staff did."""
    MAX_STEP_ATTEMPTS: int = Field(3, ge=1, le=100)
    BREAKER_FAILURES: int = Field(5, ge=1, le=1000)
    BREAKER_COOL_S: Seconds = 5
    BREAKER_MAX_COOL_S: Seconds = 60
    WORKER_QUEUES: str = "passes,writes,maintenance"
    WORKER_NAME: str = "w1"
    PASSES_THREADS: int = Field(16, ge=1, le=1000)
    WRITES_PROCESSES: int = Field(2, ge=1, le=64)

    @field_validator("ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "SECRETS_ELSEWHERE", mode="before")
    @classmethod
    def split(cls, value: object) -> object:
        return _comma_list(value)

    @field_validator("THROTTLE_RUNS", "THROTTLE_READS")
    @classmethod
    def rate(cls, value: str) -> str:
        if not RATE.match(value):
            raise ValueError("a rate looks like 600/min")
        return value

    @field_validator("BROKER_URL")
    @classmethod
    def broker(cls, value: str) -> str:
        if not re.match(r"^(memory://|rediss?://|amqps?://)", value):
            raise ValueError("must begin with memory://, redis:// or amqp://")
        return value

    @field_validator("DATABASE_URL")
    @classmethod
    def database(cls, value: str | None) -> str | None:
        if value is not None and not re.match(r"^(postgres(ql)?://|sqlite:///)", value):
            raise ValueError("must begin with postgres:// or sqlite:///")
        return value

    @model_validator(mode="after")
    def hold_only_what_the_queues_need(self) -> Environment:
        """Processes that call models hold no write token, processes that write hold no model key (M32)."""
        names = [] if "writes" in self.queues else ["COMMERCE_WRITE_TOKEN"]
        names += [] if "passes" in self.queues else ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "EMBEDDINGS_API_KEY"]
        held = [value for name in names if (value := getattr(self, name)) is not None]
        self.SECRETS_ELSEWHERE = [*self.SECRETS_ELSEWHERE, *(digest(value.get_secret_value()) for value in held)]
        for name in names:
            setattr(self, name, None)
        return self

    @field_validator("WORKER_QUEUES")
    @classmethod
    def known_queues(cls, value: str) -> str:
        names = [part.strip() for part in value.split(",") if part.strip()]
        if not names or not set(names) <= {"passes", "writes", "maintenance"}:
            raise ValueError("expected passes, writes, maintenance, or several with commas")
        return ",".join(names)

    @cached_property
    def secret_values(self) -> tuple[str, ...]:
        """Every secret in here: what is declared as one, the keys of AUDIT_KEY, passwords inside URLs."""
        declared = [value for name in type(self).model_fields if isinstance(value := getattr(self, name), SecretStr)]
        pairs = (self.AUDIT_KEY.get_secret_value() if self.AUDIT_KEY else "").split(",")
        passwords = [urlsplit(url).password or "" for url in (self.DATABASE_URL or "", self.BROKER_URL)]
        return (
            *(value.get_secret_value() for value in declared), *(pair.partition(":")[2] for pair in pairs), *passwords,
            *map(unquote, passwords),
        )  # fmt: skip

    @property
    def queues(self) -> list[str]:
        """What a worker of this environment consumes."""
        return self.WORKER_QUEUES.split(",")

    @property
    def embedded(self) -> bool:
        """The one-process default: our own SQLite file and an in-process broker."""
        return self.DATABASE_URL is None and self.BROKER_URL == "memory://"

    @property
    def anchor_log(self) -> Path:
        """Where this host notes what it sent, outside the database (`agentsite.anchors`)."""
        return (self.ANCHOR_LOG or self.VAR_DIR / "anchors.jsonl").absolute()

    @property
    def heads_log(self) -> Path:
        """Where this host notes the head of a run's audit chain after each commit (`agentsite.heads`)."""
        return (self.HEADS_LOG or self.VAR_DIR / "heads.jsonl").absolute()

    @property
    def public_url(self) -> str:
        """PUBLIC_URL, or where this process listens."""
        return self.PUBLIC_URL or f"http://{self.BIND}:{self.PORT}"

    @property
    def sqlite(self) -> bool:
        return self.DATABASE_URL is None or self.DATABASE_URL.startswith("sqlite")


def _one_line(error: ValidationError) -> str:
    # pydantic's own text repeats the input, which may be a password in a URL.
    parts = [
        ": ".join(part for part in (".".join(str(p) for p in e["loc"]), e["msg"]) if part)
        for e in error.errors(include_input=False)
    ]
    return "configuration refused: " + "; ".join(parts)


@lru_cache(maxsize=1)
def read() -> Environment:
    """The environment of this process, read once. Raises BadEnvironment with one clear line."""
    try:
        return Environment()
    except ValidationError as error:
        raise BadEnvironment(_one_line(error)) from None


def listening(*, bind: str | None, port: int | None) -> Environment:
    """The environment of a process that listens where its command line says: links to it begin with that."""
    given = read()
    given.BIND = bind or given.BIND
    given.PORT = given.PORT if port is None else port
    return given


def secret(name: str) -> SecretStr | None:
    """A credential whose variable a profile names (`read_token_env`); None where it is unset or empty."""
    value = os.environ.get(name, "")
    return SecretStr(value) if value else None


def digest(secret: str) -> str:
    """By which a process knows a secret that it does not hold."""
    return hashlib.sha256(secret.encode()).hexdigest()


def digests(*names: str) -> list[str]:
    """Digests of what these variables hold in this process; for a child that must not hold them."""
    return [digest(value) for name in names if (value := os.environ.get(name))]


def child_environment(**changes: str | None) -> dict[str, str]:
    """This process's environment for a child, with changes; None removes a variable."""
    merged = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


_dropped: list[str] = []


def drop(*names: str) -> None:
    """Take variables out of this process's environment, before it is read; `dropped` tells which were set."""
    for name in names:
        if os.environ.pop(name, None) is not None:
            _dropped.append(name)
    read.cache_clear()


def dropped() -> tuple[str, ...]:
    """Names that `drop` found set."""
    return tuple(_dropped)
