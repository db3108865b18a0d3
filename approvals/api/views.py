"""Door: REST under `/api/v1/approvals`. A signed-in person reads and decides; a token of any kind does neither.

Decides nothing itself: `approvals.queue` records a decision or refuses it. Another tenant's approval is unknown here.
"""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agentsite.refusals import Refusal
from agentsite.tenants.models import ServiceToken, visible_tenants
from agentsite.text import storable
from approvals import permits, queue
from approvals.api import wire
from approvals.models import Approval, Decision
from approvals.states import Approved

FILTERS = frozenset({"status", "cursor", "limit"})
HEADERS = {"Cache-Control": "private, no-cache"}
NO_TOKEN = ("token-may-not-decide", "A token never decides.", "Only a signed-in person may.")


class Pages(CursorPagination):
    """Cursor pages. What waits comes soonest expiry first, everything else newest first."""

    page_size = 20
    max_page_size = 100
    page_size_query_param = "limit"

    def get_ordering(self, request: Request, queryset: QuerySet[Any], view: APIView) -> tuple[str, ...]:
        waiting = request.query_params.get("status") == Approved.PENDING
        return ("expires_at", "id") if waiting else ("-requested_at", "-id")

    def get_page_size(self, request: Request) -> int:
        text = request.query_params.get("limit", "20")
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= self.max_page_size):
            raise wire.bad_parameter("limit", "out_of_range", f"a whole number from 1 to {self.max_page_size}")
        return int(text)

    def decode_cursor(self, request: Request) -> Any:
        try:
            return super().decode_cursor(request)
        except exceptions.NotFound:
            raise wire.bad_parameter("cursor", "invalid_cursor", "follow the links of a page") from None


class ApprovalsView(APIView):
    """The queue."""

    @extend_schema(
        operation_id="approvals_list", responses=wire.ApprovalPage,
        parameters=[OpenApiParameter(name, str, OpenApiParameter.QUERY) for name in sorted(FILTERS)],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Approvals of the tenants this person sees, in cursor pages; `status` narrows them."""
        rows = _seen(_staff(request))
        pages = Pages()
        page = pages.paginate_queryset(_filtered(rows, request), request, view=self) or []
        links = {"next": pages.get_next_link(), "previous": pages.get_previous_link()}
        return Response({"results": [wire.approval(row) for row in page], **links}, headers=HEADERS)


class ApprovalView(APIView):
    """One approval, whole."""

    @extend_schema(operation_id="approvals_read", responses=wire.ApprovalView)
    def get(self, request: Request, approval_id: str) -> Response:
        """Action, evidence, gate checks, expiry and decisions."""
        _turn_down_token(request, approval_id, slug="session-required", title="Only a signed-in person reads this.")
        return Response(wire.approval(_found(_seen(_staff(request)), approval_id)), headers=HEADERS)


class DecisionView(APIView):
    """Where a person decides."""

    @extend_schema(operation_id="approvals_decide", request=wire.DecisionBody, responses=wire.ApprovalView)
    def post(self, request: Request, approval_id: str) -> Response:
        """Approve or reject exactly the action with this hash; answers with the approval.

        `attestation` must equal the approval's own where it has one and the decision is to approve. The live facts are
        not read again here: the gate reads them before anything is sent.
        """
        token = request.auth
        if isinstance(token, ServiceToken):
            raise _refused_token(request, token, approval_id)
        user = _person(request)
        asked = wire.body(request.data)
        queue.decide(
            approval_id, user, asked.decision, asked.action_hash, asked.reason or "", address=_address(request),
            reason_code=asked.reason_code or "", attestation=asked.attestation or "",
        )  # fmt: skip
        return Response(wire.approval(_found(_seen(user), approval_id)), headers=HEADERS)


def _person(request: Request) -> User:
    """The signed-in member of staff. Raises Refusal 403 for anybody else."""
    user = cast("User", request.user)
    if request.auth is not None or not (user.is_active and user.is_staff):
        raise Refusal(403, "session-required", "Only a signed-in member of staff may do this.")
    return user


def _staff(request: Request) -> User:
    """A person who may look at approvals. Raises Refusal 403."""
    user = _person(request)
    if not (user.has_perm("approvals.view_approval") or user.has_perm(permits.DECIDE)):
        raise Refusal(403, "not-permitted", "You may not see approvals.", "Your account lacks this permission.")
    return user


def _seen(user: User) -> QuerySet[Approval]:
    tenants = visible_tenants(user)
    rows = Approval.objects.all() if tenants is None else Approval.objects.filter(tenant_id__in=tenants)
    # What counts alone: of attempts that do not there is no end.
    return rows.prefetch_related(Prefetch("decisions", queryset=Decision.objects.filter(counted=True)))


def _found(rows: QuerySet[Approval], approval_id: str) -> Approval:
    row = rows.filter(pk=storable(approval_id)).first()
    if row is None:
        raise Refusal(404, *queue.NOT_FOUND)
    return row


def _filtered(rows: QuerySet[Approval], request: Request) -> QuerySet[Approval]:
    query = request.query_params
    for name in sorted(query.keys() - FILTERS):
        raise wire.bad_parameter(name, "unknown_parameter", "no such parameter")
    status = query.get("status")
    if status is None:
        return rows
    if status not in {s.value for s in Approved}:
        raise wire.bad_parameter("status", "unknown_status", "one of " + ", ".join(sorted(s.value for s in Approved)))
    return rows.filter(status=status)


def _turn_down_token(request: Request, approval_id: str, *, slug: str, title: str) -> None:
    """403 for a token, but 404 where its tenant has no such approval: another tenant's is as unknown as none."""
    if isinstance(request.auth, ServiceToken):
        _found(Approval.objects.filter(tenant_id=request.auth.tenant_id), approval_id)
        raise Refusal(403, slug, title)


def _refused_token(request: Request, token: ServiceToken, approval_id: str) -> Refusal:
    """The refusal of a token's decision, kept on the approval; whose token it is and what it may do is no matter."""
    _found(Approval.objects.filter(tenant_id=token.tenant_id), approval_id)
    sent = request.data if isinstance(request.data, dict) else {}
    return queue.refuse(
        approval_id, token.user, Refusal(403, *NO_TOKEN), by=f"token {token.name}",
        decision=str(sent.get("decision", "")), action_hash=str(sent.get("action_hash", "")),
        address=_address(request),
    )  # fmt: skip


def _address(request: Request) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))
