"""The two credentials of a tenant's business system; imported by executor, facts and checks alone, never logged."""

from __future__ import annotations

import re

from pydantic import SecretStr

from agentsite import env, redaction
from tools.contracts import Backend
from tools.errors import AccessRefused

# What a bearer token may be in a header; a stray line break would fail later and look like an outage.
TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


def read_token(backend: Backend) -> SecretStr:
    """Raises AccessRefused `credential_missing`, or `credential_malformed` where it could be no bearer token."""
    return _checked(_named(backend.read_token_env))


def write_token(backend: Backend) -> SecretStr:
    """For the executor alone. Raises as `read_token` does."""
    return _checked(_named(backend.write_token_env))


def stands_for(backend: Backend, name: str) -> SecretStr:
    """What a placeholder of the tenant's stands for, for the executor alone (M71).

    Raises AccessRefused `secret_missing` where no variable of this process holds it, or one of the site's own or a
    credential of the backend would.
    """
    variable = backend.secrets.get(name, "")
    never = {"", backend.read_token_env, backend.write_token_env, *env.Environment.model_fields}
    value = env.secret(variable) if variable not in never else None
    if value is None:
        raise AccessRefused(slug="secret_missing")
    redaction.learn(variable)  # from now on an answer that repeats it is cleaned
    return value


def _named(name: str) -> SecretStr | None:
    # The default tenant's pair has defaults and a place in the typed environment; a profile may name any other.
    if name == "COMMERCE_READ_TOKEN":
        return env.read().COMMERCE_READ_TOKEN
    if name == "COMMERCE_WRITE_TOKEN":
        return env.read().COMMERCE_WRITE_TOKEN
    return env.secret(name)


def _checked(token: SecretStr | None) -> SecretStr:
    if token is None or not token.get_secret_value():
        raise AccessRefused(slug="credential_missing")
    if not TOKEN.fullmatch(token.get_secret_value()):
        raise AccessRefused(slug="credential_malformed")
    return token
