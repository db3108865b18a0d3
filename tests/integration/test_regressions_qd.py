"""Regression cases QD: queue and database. Named by their ids in the list of cases.

B60, B63 and B66 stand in `tests/system/test_regressions.py`; B62 with workers that really die in `tests/crash`.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from celery import current_app
from django.test import Client

from agentsite import dbtime, queues
from approvals.models import Approval, Decision
from runs import orchestrator, store, sweeper
from runs.contracts import Outcome
from runs.models import Attempt, Event, Input, Observation, Run, Turn, Write
from runs.orchestrator import Send
from runs.states import On
from tests import edge
from tests.between import at_once, make_due, put_back
from tests.loopback import Loopback, ok, raw
from tests.operating import act_page, operator, run_page, seq_shown, settles, write_page
from tests.system.business import captures, order
from tests.world import KEY, World, final, gather, reads, s0, turn, worker_dies

# --- B62: a step that kills its worker ----------------------------------------------------------------------------


def _dies_at_work(run: Run) -> int:
    """A worker takes the run and is killed before its handler returns; the tries that are counted then."""
    claimed = store.claim(str(run.pk))
    assert claimed is not None, "nobody may have it"
    _lapse(run)
    return claimed.attempts


def _lapse(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(lease_until=dbtime.now() - timedelta(seconds=1))


def test_b62_a_step_that_kills_every_worker_is_escalated_by_one_that_lives(world: World) -> None:
    run = world.admit()
    assert [_dies_at_work(run) for _ in range(3)] == [1, 2, 3]
    other = world.start("req-other")
    assert other.status == "awaiting_approval"
    run = world.resume(run)
    assert (run.status, run.reason, run.outcome) == ("escalated", "worker_crash_loop", "handed_to_staff")
    assert (run.model_calls, Turn.objects.filter(run=run).count(), world.posts()) == (0, 0, [])
    assert {"to": "staff", "error": "worker_crash_loop"} in world.events(run, "notice")
    assert "No refund has been issued for this request." in world.said(run)


def test_b62_the_number_of_tries_is_configuration(world: World) -> None:
    world.settings(MAX_STEP_ATTEMPTS="1")
    run = world.admit()
    assert _dies_at_work(run) == 1
    assert world.resume(run).reason == "worker_crash_loop"


def test_b62_tries_of_a_step_that_went_well_are_not_held_against_the_next(world: World) -> None:
    run = world.admit()
    assert [_dies_at_work(run) for _ in range(2)] == [1, 2]
    run = world.resume(run)
    assert (run.status, run.attempts) == ("awaiting_approval", 0)


def _dies_at_its_post(run: Run) -> None:
    """A worker looks, marks the write as sent, and is killed by the very POST: nothing of it arrives."""
    claimed = store.claim(str(run.pk))
    assert claimed is not None
    state = store.load(str(run.pk), claimed.token)
    handled = orchestrator.step(state)
    assert isinstance(handled, Send)
    if handled.resend is not None:
        store.checkpoint(state, Outcome(on=On.WRITE_RESENT, resend=handled.resend), keep=True)
        state = store.load(str(run.pk), claimed.token)
    assert state.open_write is not None and store.mark_sent(state, state.open_write) is not None
    _lapse(run)


def test_b62_a_post_that_kills_every_worker_ends_after_its_attempts_and_is_only_looked_up(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    for _ in range(2):
        _dies_at_its_post(run)
    run = world.resume(run)
    assert (run.status, run.write_attempts, world.writes(run)) == ("executing", 2, [(KEY, "unknown")])
    world.later(run, 60)
    run = world.resume(run, until="escalated")
    assert (run.reason, run.outcome, world.writes(run)) == ("needs_a_person", "handed_to_staff", [(KEY, "not_sent")])
    assert (world.sandbox.posts(), Attempt.objects.count()) == ([], 2)


def test_b62_a_look_up_that_kills_every_worker_ends_no_write_that_was_made(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="post")
    assert [_dies_at_work(run) for _ in range(3)][-1] > 3
    run = world.resume(run)
    assert (run.status, run.outcome, world.writes(run)) == ("completed", "refunded", [(KEY, "confirmed")])
    assert (len(world.sandbox.posts()), Attempt.objects.count()) == (1, 1)


def test_b62_a_write_whose_look_up_killed_its_workers_is_never_sent_again(world: World) -> None:
    run = world.start()
    world.approve(run)
    worker_dies(run, after="intent")
    _dies_at_its_post(run)
    assert [_dies_at_work(run) for _ in range(3)][-1] > 3
    run = world.resume(run)
    assert (run.status, world.writes(run), world.sandbox.posts()) == ("executing", [(KEY, "unknown")], [])
    world.later(run, 60)
    run = world.resume(run, until="escalated")
    assert (run.reason, world.writes(run), run.write_attempts) == ("needs_a_person", [(KEY, "not_sent")], 1)
    assert (world.sandbox.posts(), Attempt.objects.count()) == ([], 1)


def test_b62_a_run_is_hinted_for_once_a_back_off_and_never_while_it_is_held(world: World) -> None:
    run = world.admit()
    put_back(Run.objects.all(), enqueued_at=60)
    with current_app.connection_for_write() as link:
        channel: Any = link.default_channel
        for name in queues.ALL:
            channel.queue_purge(name)
    claimed = store.claim(str(run.pk))
    assert claimed is not None and _published() == 0
    _lapse(run)
    assert [_published() for _ in range(5)] == [1, 0, 0, 0, 0]
    put_back(Run.objects.all(), enqueued_at=4)  # a message waits already: the next is twice as patient
    assert [_published(), Run.objects.get().enqueue_tries] == [0, 1]


def _published() -> int:
    swept = sweeper.sweep()
    assert swept is not None
    return swept.published


# --- B65: a page of yesterday -------------------------------------------------------------------------------------

ROWS: tuple[Any, ...] = (Run, Write, Attempt, Approval, Observation, Turn, Event)


def _all_rows() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in ROWS]


def _moved_on(world: World) -> tuple[Run, str]:
    """Staff opened the run's act page while it waited; since then it was approved, and its write is under way."""
    run = world.start()
    seen = seq_shown(operator(), act_page(run, "escalate"))
    before = run.version
    world.approve(run)
    worker_dies(run, after="intent")
    run = world.fresh(run)
    assert (run.status, run.version > before) == ("executing", True)
    return run, seen


def test_b65_a_note_saved_on_an_old_page_is_a_conflict_and_reverts_nothing(world: World) -> None:
    run, seen = _moved_on(world)
    before = _all_rows()
    sent = {"reason": "unusual_case", "note": "I looked at this", "seen_seq": seen}
    answer = operator().post(act_page(run, "escalate"), sent)
    assert (answer.status_code, "no longer allows that" in answer.content.decode()) == (409, True)
    assert (_all_rows(), Input.objects.count()) == (before, 0)
    run = world.resume(run)
    assert (run.outcome, len(world.posts())) == ("refunded", 1)


def test_b65_an_old_review_page_s_decision_is_a_conflict(world: World) -> None:
    run, _ = _moved_on(world)
    approval, person = world.approval(run), world.browser("lead_18")
    before = _all_rows()
    body = {"decision": "reject", "action_hash": approval.action_hash, "reason": "the old page"}
    answer = edge.post(person, f"/api/v1/approvals/{approval.id}/decision", body)
    assert (answer.status_code, answer.json()["type"]) == (409, "already-decided")
    assert "lead_17" in answer.json()["detail"]
    assert _all_rows() == before
    assert list(Decision.objects.filter(counted=True).values_list("by", "decision")) == [("lead_17", "approve")]


def test_b65_an_old_settlement_and_an_old_finish_are_conflicts(world: World) -> None:
    """Both pages were opened while nobody could tell; then the write's own timer found the refund."""
    world.settings(RECONCILE_FOR_S="0.05")
    run = world.start()
    world.approve(run)
    worker_dies(run, after="post")
    world.sandbox.fault("GET /v1/refunds", "status:503", times=0)
    run = world.resume(run, until="escalated")
    desk, write = operator(), Write.objects.get()
    seen = seq_shown(desk, write_page(write))
    world.sandbox.control("/_faults", clear=True)
    assert orchestrator.settle(KEY) == "settled"
    before = _all_rows()
    assert settles(desk, write, found="not_made", seen_seq=seen) == 409
    sent = {"reason": "explained", "note": "", "text": "Nothing was made.", "seen_seq": seen}
    assert desk.post(act_page(run, "finish"), sent).status_code == 409
    assert _all_rows() == before
    assert (world.fresh(run).outcome, world.writes(run)) == ("refunded", [(KEY, "confirmed")])


FORGED = {
    "status": "awaiting_approval", "version": "6", "outcome": "", "reply": "", "waiting_for": "approval",
    "due_at_0": "2026-01-01", "due_at_1": "00:00", "lease_token": "", "attempts": "0", "_save": "Save",
}  # fmt: skip


@pytest.mark.parametrize("who", ["operator", "superuser"])
def test_b65_a_run_has_no_field_that_staff_could_save(world: World, who: str) -> None:
    run, _ = _moved_on(world)
    desk = operator("root", is_superuser=True) if who == "superuser" else operator()
    before = _all_rows()
    page = desk.get(run_page(run)).content.decode()
    for name in FORGED.keys() - {"_save"}:
        assert f'name="{name}"' not in page, name
    form = {**FORGED, "form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "form-0-id": str(run.pk)}
    write = Write.objects.get()
    for path in (run_page(run), "/admin/runs/run/", f"/admin/runs/run/{run.pk}/delete/", write_page(write)):
        assert desk.post(path, form).status_code < 500, path
        assert _all_rows() == before, path
    assert world.posts() == []


# --- B67: characters and sizes that one database takes and another does not ---------------------------------------

LONG, MEGABYTE = "r" * 300, "x" * 1_000_000
REFUSED: dict[str, tuple[str, str]] = {
    "goal with NUL": (r'{"goal": "refund\u0000me"}', "/goal"),
    "goal with a lone surrogate": (r'{"goal": "refund\ud800me"}', "/goal"),
    "goal with the other surrogate": (r'{"goal": "\udfff"}', "/goal"),
    "goal of 1 MB": (json.dumps({"goal": MEGABYTE}), "/goal"),
    "request_id of 300 characters": (json.dumps({"request_id": LONG}), "/request_id"),
    "request_id with NUL": (r'{"request_id": "req\u0000"}', "/request_id"),
    "customer with NUL": (r'{"actor": {"customer_id": "c\u0000"}}', "/actor/customer_id"),
    "order with NUL": (r'{"order_ids": ["8472\u0000"]}', "/order_ids/0"),
}


def _raw_body(changes: str) -> str:
    """The request of req-8472 with changes, as text: lone surrogates are no Python text that could be encoded."""
    return json.dumps(edge.body() | json.loads(changes))


@pytest.mark.parametrize("case", REFUSED)
def test_b67_input_that_no_field_takes_is_400_with_its_name(world: World, case: str) -> None:
    changes, pointer = REFUSED[case]
    answer = edge.post(edge.client(edge.token(world.tenant)), edge.RUNS, _raw_body(changes))
    assert (answer.status_code, answer.json()["type"], edge.pointers(answer)) == (400, "invalid-request", [pointer])
    assert (Run.objects.count(), Event.objects.count(), world.posts()) == (0, 0, [])


@pytest.mark.parametrize("bad", ["\\u0000", "\\ud800"])
def test_b67_every_other_door_refuses_it_too(world: World, bad: str) -> None:
    client = edge.client(edge.token(world.tenant))
    run = world.start()
    rows = _all_rows()
    for path, body, pointer in (
        ("messages", f'{{"text": "a{bad}b"}}', "/text"), ("cancel", f'{{"reason": "a{bad}b"}}', "/reason"),
        ("feedback", f'{{"rating": "up", "text": "a{bad}b"}}', "/text"),
    ):  # fmt: skip
        answer = edge.post(client, f"{edge.RUNS}/{run.pk}/{path}", body)
        assert (answer.status_code, edge.pointers(answer)) == (400, [pointer]), path
    approval = world.approval(run)
    decision = f'{{"decision": "reject", "action_hash": "{approval.action_hash}", "reason": "a{bad}b"}}'
    answer = edge.post(world.browser(), f"/api/v1/approvals/{approval.id}/decision", decision)
    assert (answer.status_code, edge.pointers(answer)) == (400, ["/reason"])
    assert (_all_rows(), Input.objects.count(), world.posts()) == (rows, 0, [])


def _payments(note: str) -> bytes:
    """W0's payments, the second with a note that is written as JSON text."""
    listed = json.dumps({"payments": captures("8472", "pay_9001", "pay_9002")})
    head, _, tail = listed.rpartition('"note": ""')
    return f'{head}"note": "{note}"{tail}'.encode()


@pytest.mark.parametrize(
    ("note", "kept"),
    [(r"a\u0000b", r"a\u0000b"), (r"a\ud800b", r"a\ud800b"), (r"a\u202eb", r"a\u202eb"), (r"a\u0007b", r"a\u0007b")],
)
def test_b67_a_note_is_stored_with_its_odd_characters_written_out(world: World, note: str, kept: str) -> None:
    with Loopback() as shop:
        shop.on("/v1/orders/8472", ok(order("8472")))
        shop.on("/v1/payments", raw(_payments(note)))
        shop.on("/v1/refunds", ok({"refunds": []}))
        world.settings(COMMERCE_URL=shop.url)
        run = world.start()
        assert run.status == "awaiting_approval"
        world.reject(run)
        run = world.resume(run)
    assert (run.status, run.outcome) == ("completed", "rejected")
    [listed] = Observation.objects.filter(run=run, source="get_payments")
    assert [p["note"] for p in listed.content["payments"]] == ["", kept]
    page = operator().get(run_page(run))
    assert (page.status_code, "\x00" in page.content.decode()) == (200, False)
    assert [call for call in shop.calls if call.method == "POST"] == []


NO_NUMBER = [
    b'{"payments": [{"amount": NaN}]}',
    b'{"payments": [], "total": Infinity}',
    b'{"payments": [], "n": 1e999}',
]


@pytest.mark.parametrize("answer", NO_NUMBER)
def test_b67_a_result_that_is_no_number_is_no_answer_and_leaves_nothing_stuck(world: World, answer: bytes) -> None:
    world.settings(RETRY_S="30")
    with Loopback() as shop:
        shop.on("/v1/orders/8472", ok(order("8472")))
        shop.on("/v1/payments", raw(answer))
        world.settings(COMMERCE_URL=shop.url)
        run = world.start(script=[reads("get_order", "get_payments"), final()])
        assert (run.status, [e["error"] for e in world.errors(run)]) == ("waiting_dependency", ["bad_answer"])
        world.settings(DEPENDENCY_FOR_S="0.001")
        make_due(run)
        run = world.resume(run)
    assert (run.status, run.reason, run.lease_token) == ("escalated", "dependency_unavailable", None)


@pytest.mark.parametrize("text", ["\x00", "a\ud800b", '{"final": "a\x00b"}', '{"final": "a\\u0000b", "evidence": []}'])
def test_b67_what_a_model_says_is_stored_written_out(world: World, text: str) -> None:
    run = world.start(script=[*gather(), turn(text=text), final()])
    assert run.status in ("completed", "escalated") and world.posts() == []
    said = world.raw_turns(run)[2]
    assert "\x00" not in said and not any(0xD800 <= ord(c) <= 0xDFFF for c in said)
    assert "\x00" not in str(run.reply) + world.said(run)


# --- B68: one request, many times at once -------------------------------------------------------------------------


def _spelt(number: int) -> str:
    """The same body in other words: another order of keys, other spaces, escapes."""
    body = edge.body()
    turned = dict(reversed(body.items())) if number % 2 else body
    text = json.dumps(turned, indent=number % 4 or None, ensure_ascii=bool(number % 3))
    return text.replace("charged", r"\u0063harged") if number % 5 == 0 else text


def test_b68_twenty_equal_requests_at_once_are_one_run(world: World) -> None:
    bearer = edge.token(world.tenant)
    clients = [edge.client(bearer) for _ in range(20)]
    answers = at_once([partial(edge.post, c, edge.RUNS, _spelt(n)) for n, c in enumerate(clients)])
    assert Counter(a.status_code for a in answers) == {202: 1, 200: 19}
    [run_id] = {a.json()["run_id"] for a in answers}
    assert {a.get("Idempotency-Replayed") for a in answers if a.status_code == 200} == {"true"}
    assert (Run.objects.count(), Event.objects.filter(type="run.accepted").count()) == (1, 1)
    changed = edge.post(clients[0], edge.RUNS, edge.body(goal="Order 8472, and something else."))
    assert (changed.status_code, changed.json()["type"]) == (422, "request-id-reused")
    assert edge.pointers(changed) == ["/request_id"]
    run = world.adopt(run_id, s0())
    assert (run.status, run.contract["goal"], world.posts()) == ("awaiting_approval", edge.body()["goal"], [])
    again: Client = clients[1]
    assert edge.post(again, edge.RUNS, _spelt(7)).json()["run_id"] == run_id
