"""Whether policies can be searched on this host: the index, and vectors where an endpoint is set. Part of `doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from agentsite import clock, env
from runs.management.findings.configuration import place
from runs.management.findings.finding import Finding, fail, ok, warn
from tools.errors import ReadFailed
from tools.policy import embedding, index, shelf


def of_tenant(tenant_id: str) -> Iterator[Finding]:
    """The index of this host, and how much of it has a vector; nothing on a tenant without a policy."""
    found = index.standing(tenant_id)
    if found is not None:
        yield _index(tenant_id, found)
        yield from _vectors(tenant_id)


def of_endpoint() -> Finding:
    """What search goes by: words alone, or an endpoint that is asked for one vector."""
    endpoint = embedding.configured()
    if endpoint is None:
        return ok("embeddings", "EMBEDDINGS_URL is not set: policies are searched by words alone")
    where, started_at = place(endpoint.url), clock.monotonic()
    try:
        vector = embedding.ask(endpoint, ["refund"], timeout_s=env.read().EMBEDDINGS_TIMEOUT_S, slow_is_down=False)[0]
    except ReadFailed as error:
        return warn("embeddings", f"{where} gives no vector ({error.slug}): policies are searched by words alone")
    took_ms = round((clock.monotonic() - started_at) * 1000)
    return ok("embeddings", f"{where} answers as {endpoint.model} in {took_ms} ms, {len(vector)} numbers a text")


def _index(tenant_id: str, found: index.Standing) -> Finding:
    name = f"{tenant_id} policy index"
    if found.passages is not None and found.size is not None:
        words = f"{found.passages} passages on this host, {found.size / 1024:.0f} KB, stamp {found.stamp[:8]}"
        return ok(name, words)
    if found.building:
        return warn(name, "is being built on this host")
    if fault := shelf.fault(tenant_id):
        return fail(name, f"this host takes none: {fault}")
    return ok(name, "not on this host yet: whoever searches first builds it")


def _vectors(tenant_id: str) -> Iterator[Finding]:
    done = embedding.coverage(tenant_id)
    if done is not None and done.missing:
        words = f"{done.missing} of {done.texts} passages lack one: `index_policies` makes them, and searches some"
        yield warn(f"{tenant_id} vectors", words)
    elif done is not None:
        yield ok(f"{tenant_id} vectors", f"all {done.texts} passages have one")
