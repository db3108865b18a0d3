"""Control: turns an authenticated request into one run with a frozen contract. Imports no zone, no inference.

Everything the run may ever do is taken from the tenant's profile here; the client can only narrow it (M4).
Idempotent under any concurrency (M1): the store's one statement decides which of many equal requests is the run.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import transaction
from pydantic import ValidationError

from agentsite import addresses, canonical, money, queues
from agentsite.refusals import Refusal
from agentsite.tenants.models import of_text
from agentsite.tenants.profiles import Limits, Profile
from runs import attachments, store
from runs.contracts import AskedLimits, Contract, GrantedScope, RunRequest
from runs.states import Status
from runs.store import Before, Created
from tools.contracts import Json

POLICY = "search_policy"
"""Who may not search the policies is not shown any, either."""


def admit(
    *, tenant_id: str, created_by: str, request: RunRequest, raw_body: Json, trace_id: str | None = None
) -> Created:
    """The run of this request: made now, or the one that exists (`new` says which). Nudges a worker on commit.

    `raw_body` is the JSON as it was sent: its canonical hash tells a retry from another request under the same id.
    `created_by` is `user:<pk>`. Raises Refusal: 400 `unknown-agent` or `invalid-request`, 403
    `scope-exceeds-grant`, 422 `request-id-reused`.
    """
    body_hash = canonical.sha256(attachments.without_content(raw_body))
    before = store.before(tenant_id, request.request_id, request.agent)
    found = before.known  # a retry gets its run even where the profile has changed since
    if found is None:
        check_callback(request.callback_url)
        contract = _contract(before, tenant_id, created_by, request, trace_id or uuid.uuid4().hex)
        found = store.create(
            contract, body_hash=body_hash, callback_url=request.callback_url or "", release=settings.RELEASE,
            files=attachments.taken(request.attachments),
        )  # fmt: skip
    if found.body_hash != body_hash:
        raise Refusal(
            422, "request-id-reused", "This request_id belongs to another request.",
            "The run admitted under it had a different body; nothing was changed.",
            [{"pointer": "/request_id", "code": "reused", "detail": "choose a new request_id for a new request"}],
        )  # fmt: skip
    if found.new:
        run_id = found.run_id
        transaction.on_commit(lambda: _hint(run_id))
    return found


def _hint(run_id: str) -> None:
    queues.nudge(run_id, Status.ACCEPTED.value)


def _contract(before: Before, tenant_id: str, created_by: str, request: RunRequest, trace_id: str) -> Contract:
    profile = _profile(before.document)
    order_ids = tuple(dict.fromkeys(request.order_ids)) if request.order_ids is not None else None
    granted = _granted(profile, order_ids)
    return Contract(
        request_id=request.request_id, trace_id=trace_id, tenant_id=tenant_id, agent=profile.agent,
        actor=request.actor, goal=request.goal,
        scope=granted,
        limits=granted_limits(profile.limits, request.limits),
        idempotency_root=request.request_id, policy_version_pin=profile.policy_pin,
        approval_ttl_s=profile.approval_ttl_s, approved_ttl_s=profile.approved_ttl_s,
        aggregates=profile.aggregates, queue_owner=profile.queue_owner,
        manual_qualification=profile.manual_qualification, profile_revision=before.revision, created_by=created_by,
        sensitive=profile.sensitive, policy_first=POLICY in granted.read_tools, session_memory=profile.memory.session,
        shadow=before.shadow,
    )  # fmt: skip


def _granted(profile: Profile, order_ids: tuple[str, ...] | None) -> GrantedScope:
    """The profile's tools less those it blocks: a run never holds a grant of a blocked one."""
    blocked = profile.blocked_tools
    return GrantedScope(
        order_ids=order_ids, read_tools=tuple(name for name in profile.read_tools if name not in blocked),
        write_tools={name: grant for name, grant in profile.write_tools.items() if name not in blocked},
        people_tools=tuple(name for name in profile.people_tools if name not in blocked),
    )  # fmt: skip


def _profile(document: str | None) -> Profile:
    if document is None:
        raise Refusal(
            400, "unknown-agent", "This tenant has no such agent.", "",
            [{"pointer": "/agent", "code": "unknown", "detail": "no agent of this name is set up"}],
        )  # fmt: skip
    try:
        return of_text(document)
    except ValidationError:
        # Our own stored row: the client did nothing wrong and must not be told what is in it.
        raise Refusal(500, "profile-invalid", "The tenant's agent profile cannot be loaded.") from None


def granted_limits(granted: Limits, asked: AskedLimits | None) -> Limits:
    """The profile's limits, narrowed by what the client asked for. Raises Refusal 403 where it asked for more."""
    wanted = {name: value for name in Limits.model_fields if (value := getattr(asked, name, None)) is not None}
    errors = [
        _exceeds(f"/limits/{name}") for name, value in wanted.items() if not _within(value, getattr(granted, name))
    ]
    if errors:
        raise Refusal(
            403, "scope-exceeds-grant", "The request asks for more than the agent is granted.",
            "Limits can only be narrowed.", errors,
        )  # fmt: skip
    return granted.model_copy(update=wanted)


def _within(asked: object, granted: object) -> bool:
    if isinstance(asked, money.Money) and isinstance(granted, money.Money):
        return asked.currency == granted.currency and asked <= granted
    assert isinstance(asked, int) and isinstance(granted, int), "a limit is money or an integer"
    return asked <= granted


def _exceeds(pointer: str) -> Json:
    return {"pointer": pointer, "code": "exceeds_grant", "detail": "more than the tenant's profile grants"}


def check_callback(url: str | None) -> None:
    """Raises Refusal 400 unless the URL is absent, or https to a host that can be public. Looks nothing up."""
    fault = addresses.fault(url) if url is not None else None
    if fault is not None:
        raise Refusal(
            400, "invalid-request", "The request is not valid.", "callback_url: " + fault,
            [{"pointer": "/callback_url", "code": "callback_refused", "detail": fault}],
        )  # fmt: skip
