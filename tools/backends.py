"""Which business system a tenant has. Holds names of credentials, never a credential; imports no runs, no approvals."""

from __future__ import annotations

from agentsite import env
from agentsite.tenants.models import current_profile
from tools.contracts import Backend


def backend_of(tenant_id: str, agent: str) -> Backend:
    """The tenant's business system as declared at this moment (never frozen: an address may move)."""
    profile = current_profile(tenant_id, agent)
    commerce, secrets = (profile.commerce, profile.secrets) if profile else (None, {})
    if commerce is None:
        e = env.read()
        return Backend(
            tenant_id=tenant_id, url=e.COMMERCE_URL, read_token_env="COMMERCE_READ_TOKEN",
            write_token_env="COMMERCE_WRITE_TOKEN", honours_keys=e.COMMERCE_HONOURS_KEYS,
            key_life_s=e.COMMERCE_KEY_LIFE_S, settle_s=e.COMMERCE_SETTLE_S, secrets=secrets,
        )  # fmt: skip
    return Backend(
        tenant_id=tenant_id, url=commerce.url, read_token_env=commerce.read_token_env,
        write_token_env=commerce.write_token_env, honours_keys=commerce.honours_keys,
        key_life_s=commerce.key_life_s, settle_s=commerce.settle_s, secrets=secrets,
    )  # fmt: skip
