"""The approvals API as the contract's sections 3 and 7 have it: a session decides, a token never, a body is exact."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentsite import dbtime
from agentsite.tenants.models import ServiceToken
from approvals import queue
from approvals.models import Approval, Decision
from tests import approving

pytestmark = pytest.mark.django_db
APPROVALS = "/api/v1/approvals"
FIELDS = {
    "approval_id", "status", "run_id", "tenant_id", "tool", "action", "action_hash", "evidence", "checks", "rule",
    "expires_at", "requested_at", "decided_at", "decided_by", "reason", "reason_code", "attestation",
    "required", "remaining", "decisions",
}  # fmt: skip
OMIT = object()


@pytest.fixture
def asked() -> Approval:
    return Approval.objects.get(pk=approving.ask(approving.run()))


@pytest.fixture
def lead(db: None) -> User:
    return approving.person()


def signed_in(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


def with_token(user: User, tenant_id: str = approving.TENANT, scopes: str = "runs:write runs:read") -> Client:
    approving.tenant(tenant_id)
    _, secret = ServiceToken.objects.create(user=user, tenant_id=tenant_id, name="shop", scopes=scopes)
    return Client(headers={"Authorization": f"Bearer {secret}"})


def post(client: Client, approval_id: str, body: Any, **headers: str) -> Any:
    raw = body if isinstance(body, str) else json.dumps(body)
    path = f"{APPROVALS}/{approval_id}/decision"
    return client.post(path, data=raw, content_type="application/json", headers=headers)


def decide(client: Client, approval: Approval, decision: Any = "approve", **changes: Any) -> Any:
    sent = {"decision": decision, "action_hash": approval.action_hash, **changes}
    return post(client, approval.pk, {k: v for k, v in sent.items() if v is not OMIT})


def problem(answer: Any, status: int, slug: str) -> dict[str, Any]:
    assert (answer.status_code, answer.json()["type"]) == (status, slug)
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert answer.json()["status"] == status
    document: dict[str, Any] = answer.json()
    return document


# --- reading -----------------------------------------------------------------------------------------------


def test_one_approval_has_exactly_the_contracts_shape(asked: Approval, lead: User) -> None:
    answer = signed_in(lead).get(f"{APPROVALS}/{asked.pk}")
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == FIELDS
    assert body["action"] == {"tool": "issue_refund", "args": asked.args}
    assert body["action"]["args"]["amount"] == {"amount": "2000.00", "currency": "INR"}
    assert (body["approval_id"], body["run_id"], body["tenant_id"]) == (asked.pk, str(asked.run_id), asked.tenant_id)
    assert (body["status"], body["required"], body["remaining"], body["decisions"]) == ("pending", 1, 1, [])
    assert (body["decided_at"], body["decided_by"], body["reason"]) == (None, None, "")
    assert body["expires_at"].endswith("Z") and body["requested_at"] < body["expires_at"]
    assert body["checks"] == approving.CHECKS
    assert [e["obs_id"] for e in body["evidence"]] == ["obs_1", "obs_2", "obs_3", "obs_4"]


def test_the_list_pages_by_cursor_and_filters_by_status(lead: User) -> None:
    for number in range(5):
        approving.ask(approving.run(request_id=f"req-{number}"), ttl_s=1000 - number)
    void = Approval.objects.get(request_id="req-0")
    queue.void(str(void.run_id), "message")
    client = signed_in(lead)
    seen, link = [], f"{APPROVALS}?status=pending&limit=3"
    while link:
        page = client.get(link).json()
        assert set(page) == {"results", "next", "previous"}
        seen += [a["run_id"] for a in page["results"]]
        link = page["next"]
    waiting = Approval.objects.filter(status="pending").order_by("expires_at")
    assert seen == [str(a.run_id) for a in waiting]
    assert [a["status"] for a in client.get(f"{APPROVALS}?status=void").json()["results"]] == ["void"]
    newest = client.get(APPROVALS).json()["results"]
    assert [a["requested_at"] for a in newest] == sorted((a["requested_at"] for a in newest), reverse=True)
    assert len(newest) == 5


@pytest.mark.parametrize(
    ("query", "pointer"),
    [("status=open", "/status"), ("limit=0", "/limit"), ("limit=1e3", "/limit"), ("limit=101", "/limit"),
     ("cursor=nonsense", "/cursor"), ("tenant=t_other", "/tenant")],
)  # fmt: skip
def test_a_bad_query_is_named(asked: Approval, lead: User, query: str, pointer: str) -> None:
    body = problem(signed_in(lead).get(f"{APPROVALS}?{query}"), 400, "invalid-request")
    assert [e["pointer"] for e in body["errors"]] == [pointer]


def test_another_tenants_approval_is_as_unknown_as_none(asked: Approval) -> None:
    client = signed_in(approving.person("stranger", tenants=("t_other",)))
    assert client.get(APPROVALS).json()["results"] == []
    for make in (lambda i: client.get(f"{APPROVALS}/{i}"), lambda i: post(client, i, _yes(asked))):
        foreign, random = problem(make(asked.pk), 404, "not-found"), problem(make("apr_none"), 404, "not-found")
        for volatile in ("instance", "trace_id"):
            foreign.pop(volatile, None), random.pop(volatile, None)
        assert foreign == random
    assert Decision.objects.count() == 0


def _yes(approval: Approval) -> dict[str, str]:
    return {"decision": "approve", "action_hash": approval.action_hash}


def test_looking_needs_the_permission(asked: Approval) -> None:
    client = signed_in(approving.person("nobody", may=()))
    problem(client.get(APPROVALS), 403, "not-permitted")
    problem(client.get(f"{APPROVALS}/{asked.pk}"), 403, "not-permitted")


def test_nobody_in_particular_is_nobody(asked: Approval) -> None:
    for answer in (Client().get(APPROVALS), post(Client(), asked.pk, _yes(asked))):
        assert answer.status_code in (401, 403)
    customer = User.objects.create_user("customer", password=approving.PASSWORD)
    assert decide(signed_in(customer), asked).status_code in (401, 403)
    asked.refresh_from_db()
    assert asked.status == "pending"


# --- deciding ----------------------------------------------------------------------------------------------


def test_approve_answers_with_the_approval(asked: Approval, lead: User) -> None:
    answer = decide(signed_in(lead), asked, reason="Two captures seen")
    body = answer.json()
    assert answer.status_code == 200
    assert set(body) == FIELDS
    assert (body["status"], body["decided_by"], body["reason"]) == ("approved", "lead_17", "Two captures seen")
    assert body["remaining"] == 0
    assert [(d["by"], d["decision"], d["reason"]) for d in body["decisions"]] == [
        ("lead_17", "approve", "Two captures seen")
    ]
    assert set(body["decisions"][0]) == {"by", "decision", "at", "reason"}
    assert body["decisions"][0]["at"] == body["decided_at"]


def test_the_same_again_is_200_and_another_is_409(asked: Approval, lead: User) -> None:
    client = signed_in(lead)
    first = decide(client, asked).json()
    assert decide(client, asked).json() == first
    body = problem(decide(client, asked, "reject", reason="no"), 409, "already-decided")
    assert body["detail"].startswith("lead_17 approved it at ")
    problem(decide(signed_in(approving.person("lead_18")), asked), 409, "already-decided")
    assert Decision.objects.filter(counted=True).count() == 1


def test_two_people_are_counted_down() -> None:
    approval = Approval.objects.get(pk=approving.ask(approving.run(), required=2))
    body = decide(signed_in(approving.person("ann")), approval).json()
    assert (body["status"], body["required"], body["remaining"], body["decided_by"]) == ("pending", 2, 1, None)
    body = decide(signed_in(approving.person("bob")), approval).json()
    assert (body["status"], body["remaining"], body["decided_by"]) == ("approved", 0, "bob")
    assert [d["by"] for d in body["decisions"]] == ["ann", "bob"]


@pytest.mark.parametrize(
    "decision", [None, "", "approved", "APPROVED ", "Approve", True, 1, ["approve"], {"approve": True}, OMIT]
)
def test_only_the_exact_words_decide(asked: Approval, lead: User, decision: Any) -> None:
    body = problem(decide(signed_in(lead), asked, decision), 400, "invalid-request")
    assert [e["pointer"] for e in body["errors"]] == ["/decision"]
    asked.refresh_from_db()
    assert asked.status == "pending"
    assert Decision.objects.count() == 0


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"action_hash": OMIT}, "/action_hash"), ({"action_hash": None}, "/action_hash"),
        ({"action_hash": 7}, "/action_hash"),
        ({"approver": "cfo"}, "/approver"), ({"decided_by": "cfo"}, "/decided_by"), ({"reason": 5}, "/reason"),
        ({"reason": "x" * 2001}, "/reason"), ({"reason": "a\x00b"}, "/reason"), ({"reason": "\ud800"}, "/reason"),
    ],
)  # fmt: skip
def test_a_body_is_exact(asked: Approval, lead: User, changes: dict[str, Any], pointer: str) -> None:
    body = problem(decide(signed_in(lead), asked, **changes), 400, "invalid-request")
    assert [e["pointer"] for e in body["errors"]] == [pointer]
    asked.refresh_from_db()
    assert asked.status == "pending"


@pytest.mark.parametrize("raw", ["", "null", "[]", '"approve"', "{", '{"decision": "approve", "decision": "reject"}'])
def test_a_body_that_is_no_object_is_refused(asked: Approval, lead: User, raw: str) -> None:
    assert post(signed_in(lead), asked.pk, raw).status_code == 400
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_refusals_have_their_slugs(asked: Approval, lead: User) -> None:
    client = signed_in(lead)
    problem(decide(client, asked, action_hash="sha256:" + "0" * 64), 409, "action-changed")
    body = problem(decide(client, asked, "reject"), 422, "reason-required")
    assert [e["pointer"] for e in body["errors"]] == ["/reason"]
    problem(decide(signed_in(approving.person("viewer", may=("view_approval",))), asked), 403, "not-permitted")
    Approval.objects.filter(pk=asked.pk).update(expires_at=dbtime.now() - timedelta(seconds=1))
    problem(decide(client, asked), 409, "approval-expired")
    queue.void(str(asked.run_id), "message")
    problem(decide(client, asked), 409, "approval-void")
    kept = Decision.objects.order_by("id").values_list("refusal", flat=True)
    assert list(kept) == ["action-changed", "reason-required", "not-permitted", "approval-expired", "approval-void"]
    assert not Decision.objects.filter(counted=True).exists()


def test_the_id_of_another_approval_with_this_hash_is_refused(asked: Approval, lead: User) -> None:
    other = Approval.objects.get(pk=approving.ask(approving.run(request_id="req-2")))
    answer = post(signed_in(lead), other.pk, _yes(asked))
    problem(answer, 409, "action-changed")
    assert Approval.objects.filter(status="pending").count() == 2


def test_a_session_needs_its_csrf_token(asked: Approval, lead: User) -> None:
    client = signed_in(lead, enforce_csrf_checks=True)
    assert decide(client, asked).status_code == 403
    client.get("/admin/")
    client.get(f"/admin/approvals/approval/{asked.pk}/change/")
    token = client.cookies["csrftoken"].value
    assert post(client, asked.pk, _yes(asked), **{"X-CSRFToken": token}).status_code == 200


# --- tokens ------------------------------------------------------------------------------------------------


def test_a_token_never_decides_whoever_owns_it(asked: Approval, lead: User) -> None:
    root = approving.person("root", is_superuser=True)
    for owner in (lead, root):
        problem(decide(with_token(owner), asked), 403, "token-may-not-decide")
    asked.refresh_from_db()
    assert asked.status == "pending"
    kept = Decision.objects.order_by("id").values_list("user_id", "by", "refusal", "counted", "decision")
    assert list(kept) == [
        (lead.pk, "token shop", "token-may-not-decide", False, "approve"),
        (root.pk, "token shop", "token-may-not-decide", False, "approve"),
    ]


def test_a_token_beside_a_session_is_still_a_token(asked: Approval, lead: User) -> None:
    client = with_token(approving.person("service"))
    client.force_login(lead)
    problem(decide(client, asked), 403, "token-may-not-decide")
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_a_token_with_nonsense_is_told_the_same(asked: Approval, lead: User) -> None:
    problem(decide(with_token(lead), asked, {"a": ["\ud800"]}, action_hash=None), 403, "token-may-not-decide")
    assert Decision.objects.get().decision == ""


def test_the_creator_may_not_approve_by_token_nor_by_session(lead: User) -> None:
    approval = Approval.objects.get(pk=approving.ask(approving.run(created_by=f"user:{lead.pk}")))
    problem(decide(with_token(lead), approval), 403, "token-may-not-decide")
    problem(decide(signed_in(lead), approval), 403, "own-run")
    approval.refresh_from_db()
    assert approval.status == "pending"


def test_a_token_reads_no_queue_and_knows_no_other_tenant(asked: Approval, lead: User) -> None:
    mine, other = with_token(lead), with_token(lead, "t_other")
    problem(mine.get(APPROVALS), 403, "session-required")
    problem(mine.get(f"{APPROVALS}/{asked.pk}"), 403, "session-required")
    for answer in (other.get(f"{APPROVALS}/{asked.pk}"), decide(other, asked), post(other, "apr_none", _yes(asked))):
        problem(answer, 404, "not-found")
    assert Decision.objects.count() == 0
