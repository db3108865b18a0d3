"""Door: an approval and a decision as the contract's JSON. Reads approvals; writes nothing; imports no runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from agentsite import clock
from agentsite.refusals import Refusal
from agentsite.text import has_forbidden, storable
from approvals import queue, reasons
from approvals.answers import MAX_ATTESTATION
from approvals.models import Approval
from approvals.states import Approved

MAX_FAULTS = 50
CODES: list[JsonValue] = [*reasons.CODES]


class View(BaseModel):
    """Frozen, and strict about fields it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DecisionBody(View):
    """The body of `POST /api/v1/approvals/{id}/decision`."""

    decision: Literal["approve", "reject"]
    action_hash: Annotated[str, Field(strict=True, min_length=1, max_length=80)]
    reason: Annotated[str, Field(strict=True, max_length=queue.MAX_REASON)] | None = None
    reason_code: Annotated[str, Field(strict=True, max_length=40, json_schema_extra={"enum": CODES})] | None = None
    attestation: Annotated[str, Field(strict=True, max_length=2 * MAX_ATTESTATION)] | None = None


class ActionView(View):
    tool: str
    args: dict[str, Any]


class DecisionView(View):
    by: str
    decision: str
    at: str
    reason: str


class ApprovalView(View):
    """An approval, wherever it is returned."""

    approval_id: str
    status: Approved
    run_id: str
    tenant_id: str
    tool: str
    action: ActionView
    action_hash: str
    evidence: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    rule: str
    expires_at: str
    requested_at: str
    decided_at: str | None
    decided_by: str | None
    reason: str
    reason_code: str
    attestation: str
    required: int
    remaining: int
    decisions: list[DecisionView]


class ApprovalPage(View):
    results: list[ApprovalView]
    next: str | None
    previous: str | None


def approval(row: Approval) -> dict[str, Any]:
    """The contract's JSON of one approval; money inside `args` is the wire object already."""
    at = clock.rfc3339
    view = ApprovalView(
        approval_id=row.pk, status=Approved(row.status), run_id=str(row.run_id), tenant_id=row.tenant_id,
        tool=row.tool, action=ActionView(tool=row.tool, args=row.args), action_hash=row.action_hash,
        evidence=row.evidence, checks=row.checks, rule=row.rule, expires_at=at(row.expires_at),
        requested_at=at(row.requested_at), decided_at=at(row.decided_at) if row.decided_at else None,
        decided_by=row.decided_by, reason=row.reason, reason_code=row.reason_code,
        attestation=row.attestation, required=row.required, remaining=queue.remaining(row),
        decisions=[
            DecisionView(by=d.by, decision=d.decision, at=at(d.at), reason=d.reason)
            for d in row.decisions.all()
            if d.counted
        ],
    )  # fmt: skip
    return view.model_dump(mode="json")


def body(data: Any) -> DecisionBody:
    """A decision's body. Raises Refusal 400 `invalid-request` that points at every field at fault."""
    if isinstance(data, dict):
        hidden = [n for n, v in data.items() if has_forbidden(n) or (isinstance(v, str) and has_forbidden(v))]
        if hidden:
            raise _invalid([_fault((n,), "forbidden_text", "no NUL and no lone surrogate") for n in hidden])
    try:
        return DecisionBody.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise _invalid([_fault(e["loc"], e["type"], e["msg"]) for e in found[:MAX_FAULTS]]) from None


def bad_parameter(name: str, code: str, detail: str) -> Refusal:
    return _invalid([_fault((name,), code, detail)])


def _fault(location: tuple[int | str, ...], code: str, detail: str) -> dict[str, Any]:
    steps = (storable(str(part)).replace("~", "~0").replace("/", "~1") for part in location)
    return {"pointer": "".join(f"/{step}" for step in steps)[:300], "code": code, "detail": detail}


def _invalid(faults: list[dict[str, Any]]) -> Refusal:
    detail = f"{faults[0]['pointer'] or 'body'}: {faults[0]['detail']}"
    return Refusal(400, "invalid-request", "The request is not valid.", detail, faults[:MAX_FAULTS])
