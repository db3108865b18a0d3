"""What each tenant needs: a profile, a policy, a business system, people, a qualified model. Part of `doctor`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from django.contrib.auth.models import Permission, User
from django.db.models import Q
from pydantic import ValidationError

from agentsite import checks, clock, dbtime, env
from agentsite.tenants import profiles
from agentsite.tenants.models import AgentProfile, Site, Tenant
from agentsite.tenants.profiles import Profile
from runs import prompt as prompts
from runs import qualification
from runs.backends import backend_of
from runs.inference import gateway
from runs.management.findings import costs, searching
from runs.management.findings.configuration import place
from runs.management.findings.finding import Finding, fail, ok, warn
from runs.models import Qualification
from tools import facts
from tools.contracts import Backend
from tools.errors import NotFound, ReadFailed
from tools.policy import freshness

NO_SUCH_ORDER = "doctor-no-such-order"


def examine() -> Iterator[Finding]:
    """Findings on the site's switches, every tenant's profile in force, and the routes that may propose writes."""
    yield _switches()
    rows = _in_force()
    if not rows:
        yield fail("tenants", "none has a profile: run `manage.py bootstrap`")
    for fault in checks.profile_faults():
        yield fail("profile", fault)
    for row in rows:
        profile = _parsed(row)
        if profile is not None:
            yield from _tenant(row.tenant_id, profile)
    for agent in sorted({row.agent for row in rows}):
        yield from _qualified(agent)


def _in_force() -> list[AgentProfile]:
    newest: dict[tuple[str, str], AgentProfile] = {}
    for row in AgentProfile.objects.order_by("tenant_id", "agent", "revision"):
        newest[(row.tenant_id, row.agent)] = row
    return list(newest.values())


def _parsed(row: AgentProfile) -> Profile | None:
    try:
        return profiles.parse(row.document)
    except ValidationError:
        return None  # its faults are findings of their own


def _switches() -> Finding:
    stopped = ["the whole site"] if Site.objects.filter(paused=True).exists() else []
    stopped += list(Tenant.objects.filter(paused=True).order_by("id").values_list("id", flat=True))
    if stopped:
        return warn("stop switches", f"writes are stopped for {', '.join(stopped)}")
    return ok("stop switches", "no write is stopped")


def _tenant(tenant_id: str, profile: Profile) -> Iterator[Finding]:
    backend = backend_of(tenant_id, profile.agent)
    yield _policy(tenant_id, profile.policy_pin)
    yield from searching.of_tenant(tenant_id)
    yield _reads(tenant_id, backend)
    yield _write_credential(tenant_id, backend)
    yield _promises(tenant_id, backend)
    yield _people(tenant_id)
    yield from costs.of_profile(tenant_id, profile)


def _policy(tenant_id: str, pin: str) -> Finding:
    name, state = f"{tenant_id} policy", freshness.policy_state(tenant_id, pin)
    if state.current is None:
        return fail(name, f"{pin} is pinned, but no version of {state.doc} is current: load it with `index_policies`")
    if state.current != state.pinned:
        return fail(name, f"{pin} is pinned, but v{state.current} is current: runs end as policy_stale")
    return ok(name, f"{pin} is pinned and current")


def _reads(tenant_id: str, backend: Backend) -> Finding:
    """An order that cannot exist: an honest 404 shows that the address, the credential and the interface are right."""
    name, where, started = f"{tenant_id} business system", place(backend.url), clock.monotonic()
    try:
        facts.read_order(backend, NO_SUCH_ORDER, uuid.uuid4().hex, retries=0)
    except NotFound:
        pass
    except ReadFailed as error:
        return fail(name, f"{where}: {_cure(error, backend)}")
    took_ms = round((clock.monotonic() - started) * 1000)
    return ok(name, f"{where} answers in {took_ms} ms and takes the credential {backend.read_token_env}")


def _cure(error: ReadFailed, backend: Backend) -> str:
    if error.slug == "breaker_open":
        return f"was down, and is left alone for {error.retry_after_s or 0:.1f} s more"
    if error.slug == "upstream_unavailable":
        return "does not answer (the sandbox: `manage.py sandbox`)"
    if error.slug in ("credential_missing", "credential_malformed", "access_refused"):
        return f"the read credential is no good ({error.slug}): set {backend.read_token_env}"
    return f"answers what we cannot rely on ({error.slug})"


def _write_credential(tenant_id: str, backend: Backend) -> Finding:
    name, variable = f"{tenant_id} write credential", backend.write_token_env
    given = env.read()
    # The default tenant's has a default and a place in the typed environment; a profile may name any other.
    held = given.COMMERCE_WRITE_TOKEN if variable == "COMMERCE_WRITE_TOKEN" else env.secret(variable)
    if "writes" in given.queues:
        return ok(name, f"{variable} is set") if held else fail(name, f"{variable} is not set: nothing can be refunded")
    if held:
        return warn(name, f"{variable} is set, though this process consumes no writes")
    return ok(name, "not held: this process consumes no writes")


def _promises(tenant_id: str, backend: Backend) -> Finding:
    name = f"{tenant_id} promises"
    if backend.honours_keys:
        return ok(name, f"keys are honoured for {backend.key_life_s:g} s; settles in {_settles(backend)}")
    if backend.settle_s is None:
        return warn(name, "neither keys nor a settling time: a write without an answer is never sent again")
    return ok(name, f"no keys; settles in {_settles(backend)}: a write without an answer waits so long")


def _settles(backend: Backend) -> str:
    return f"{backend.settle_s:g} s" if backend.settle_s is not None else "an unknown time"


def _people(tenant_id: str) -> Finding:
    decide = Permission.objects.filter(codename="decide_approval", content_type__app_label="approvals")
    able = Q(is_superuser=True) | (
        Q(staff_tenants__tenant_id=tenant_id) & (Q(groups__permissions__in=decide) | Q(user_permissions__in=decide))
    )
    people = User.objects.filter(able, is_active=True, is_staff=True).distinct().count()
    if not people:
        return warn(f"{tenant_id} approvers", "nobody may decide its approvals: make one with `create_approver`")
    return ok(f"{tenant_id} approvers", f"{people} may decide")


def _qualified(agent: str) -> Iterator[Finding]:
    for number, route in enumerate(env.read().AGENT_MODELS):
        rows = _qualifications(agent, route)
        name = f"{agent} qualification"
        if not rows:
            verdict = fail if number == 0 else warn
            yield verdict(name, f"{route} may not propose writes with today's prompt: `qualify` it")
            continue
        manual = [row for row in rows if row.kind == "manual"]
        if len(manual) == len(rows):
            ends = manual[0].ends_at
            until = f" until {clock.rfc3339(ends)}" if ends else ""
            yield warn(name, f"{route} may propose writes by hand-given leave{until}: {manual[0].reason}")
        else:
            yield ok(name, f"{route} may propose writes (evaluated)")


def _qualifications(agent: str, route: str) -> list[Qualification]:
    provider, _, model = route.partition(":")
    return list(
        Qualification.objects.filter(
            Q(ends_at__isnull=True) | Q(ends_at__gt=dbtime.now()), agent=agent, provider=provider,
            origin=gateway.origin(route), requested_model=model, prompt_hash=prompts.template_hash(),
            tools_hash=qualification.tools_hash(agent), revoked=False,
        ).order_by("-id")
    )  # fmt: skip
