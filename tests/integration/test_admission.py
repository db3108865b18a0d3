"""M1, M2, M4: one request is one run whoever asks how often; what it may do is the server's word."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction

from agentsite import queues
from agentsite.refusals import Refusal
from agentsite.tenants.models import AgentProfile
from runs import admission
from runs.contracts import RunRequest
from runs.management import tenancy
from runs.models import Event, Run, RunOrder
from runs.store import Created
from tests import edge

Nudges = list[tuple[str, str]]


@pytest.fixture
def nudges(monkeypatch: pytest.MonkeyPatch) -> Nudges:
    sent: Nudges = []

    def nudge(run_id: str, status: str) -> bool:
        sent.append((run_id, status))
        return True

    monkeypatch.setattr(queues, "nudge", nudge)
    return sent


def admit(data: dict[str, Any], **changes: Any) -> Created:
    given = {"tenant_id": "t_acme_in", "created_by": "user:7", "trace_id": "a" * 32, **changes}
    return admission.admit(request=RunRequest.model_validate(data), raw_body=data, **given)


@pytest.mark.django_db
def test_admission_freezes_the_contract_of_the_profile() -> None:
    edge.tenant()
    created = admit(edge.body(limits={"max_model_calls": 5}))
    run = Run.objects.get(id=created.run_id)
    assert created.new
    assert run.contract["scope"] == {
        "order_ids": ["8472"],
        "read_tools": ["get_order", "get_payments", "get_refund_status", "search_policy"],
        "write_tools": tenancy.DEFAULT_PROFILE["write_tools"],
        "people_tools": ["message", "ask", "plan", "escalate"],
    }
    assert run.contract["limits"] == {
        "max_model_calls": 5, "deadline_ms": 30000, "max_write_attempts": 2, "max_input_tokens": 60000,
        "max_output_tokens": 8000, "max_cost": {"amount": "1.00", "currency": "USD"},
    }  # fmt: skip
    assert run.contract["actor"] == {"customer_id": "cust_5521", "session_id": "sess_91c", "channel": "chat"}
    assert {name: run.contract[name] for name in ("idempotency_root", "policy_version_pin", "created_by")} == {
        "idempotency_root": "req-8472", "policy_version_pin": "POL-REF-004@v4", "created_by": "user:7",
    }  # fmt: skip
    assert (run.status, run.trace_id, run.release) == ("accepted", "a" * 32, settings.RELEASE)
    assert list(RunOrder.objects.values_list("order_id", flat=True)) == ["8472"]
    assert list(Event.objects.values_list("seq", "type")) == [(1, "run.accepted")]


@pytest.mark.django_db
def test_admission_of_the_same_body_in_another_order_finds_the_run() -> None:
    edge.tenant()
    first = admit(edge.body())
    again = admit(dict(reversed(edge.body().items())))
    assert (again.run_id, again.new, Run.objects.count()) == (first.run_id, False, 1)


@pytest.mark.django_db
@pytest.mark.parametrize("changes", [{"goal": "another"}, {"order_ids": ["8473"]}, {"limits": None}])
def test_admission_of_another_body_is_refused_and_the_first_run_untouched(changes: dict[str, Any]) -> None:
    edge.tenant()
    admit(edge.body())
    before = Run.objects.values().get()
    with pytest.raises(Refusal) as caught:
        admit(edge.body(**changes))
    assert (caught.value.status, caught.value.slug) == (422, "request-id-reused")
    assert Run.objects.values().get() == before


@pytest.mark.django_db
def test_admission_again_after_a_narrower_profile_still_finds_the_run() -> None:
    edge.tenant()
    first = admit(edge.body(limits={"max_model_calls": 12}))
    narrower = {**tenancy.DEFAULT_PROFILE, "limits": {"max_model_calls": 3}}
    AgentProfile.objects.create(tenant_id="t_acme_in", agent="refunds", revision=2, document=narrower)
    assert admit(edge.body(limits={"max_model_calls": 12})).run_id == first.run_id
    with pytest.raises(Refusal, match="scope-exceeds-grant"):
        admit(edge.body("req-2", limits={"max_model_calls": 12}))
    other = admit(edge.body("req-3"))
    assert other.new
    assert Run.objects.get(id=other.run_id).contract["limits"]["max_model_calls"] == 3


@pytest.mark.django_db
def test_admission_of_an_unknown_agent_or_tenant_is_refused() -> None:
    edge.tenant()
    for changes, asked in (({"agent": "returns"}, {}), ({}, {"tenant_id": "t_none"})):
        with pytest.raises(Refusal) as caught:
            admit(edge.body(**changes), **asked)
        assert (caught.value.status, caught.value.slug) == (400, "unknown-agent")
    assert Run.objects.count() == 0


@pytest.mark.django_db
def test_admission_refuses_a_private_callback_and_makes_no_run() -> None:
    edge.tenant()
    with pytest.raises(Refusal) as caught:
        admit(edge.body(callback_url="https://169.254.169.254/"))
    assert caught.value.status == 400
    assert (caught.value.errors or [])[0]["pointer"] == "/callback_url"
    assert Run.objects.count() == 0


@pytest.mark.django_db
def test_admission_with_a_profile_no_code_reads_is_a_fault_of_ours() -> None:
    row = edge.tenant()
    AgentProfile.objects.create(tenant=row, agent="refunds", revision=2, document={"read_tols": []})
    with pytest.raises(Refusal) as caught:
        admit(edge.body())
    assert (caught.value.status, caught.value.slug, caught.value.detail) == (500, "profile-invalid", "")


@pytest.mark.django_db
def test_one_request_id_in_two_tenants_is_two_runs() -> None:
    edge.tenant()
    edge.tenant("t_other")
    first, second = admit(edge.body()), admit(edge.body(), tenant_id="t_other")
    assert first.run_id != second.run_id
    assert (first.new, second.new) == (True, True)


@pytest.mark.django_db(transaction=True)
def test_nudge_waits_for_the_outer_commit(nudges: Nudges) -> None:
    edge.tenant()
    with transaction.atomic():
        created = admit(edge.body())
        assert nudges == []
    assert nudges == [(created.run_id, "accepted")]


@pytest.mark.django_db(transaction=True)
def test_rolled_back_admission_nudges_nobody_and_leaves_no_run(nudges: Nudges) -> None:
    edge.tenant()
    with pytest.raises(RuntimeError), transaction.atomic():
        admit(edge.body())
        raise RuntimeError("the outer transaction fails")
    assert (nudges, Run.objects.count()) == ([], 0)


@pytest.mark.django_db(transaction=True)
def test_fifty_equal_posts_at_once_make_one_run(nudges: Nudges) -> None:
    edge.tenant()
    bearer = edge.token()
    start = threading.Barrier(50)
    answers: list[tuple[int, str, str | None]] = []

    def send() -> None:
        try:
            sender = edge.client(bearer)
            start.wait(30)
            answer = edge.post(sender, edge.RUNS, edge.body())
            answers.append((answer.status_code, answer.json()["run_id"], answer.headers.get("Idempotency-Replayed")))
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert sorted(status for status, _, _ in answers) == [200] * 49 + [202]
    assert {run_id for _, run_id, _ in answers} == {str(Run.objects.get().id)}
    assert sum(replayed == "true" for _, _, replayed in answers) == 49
    assert len(nudges) == 1
    assert edge.post(edge.client(bearer), edge.RUNS, edge.body(goal="another")).status_code == 422
