"""Staff are told by mail and chat of what waits, of what is about to expire, and of what did; nothing waits for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import reverse

from agentsite import clock, env, mail, queues
from agentsite.lanes import Lanes
from approvals import notices, notify, telling
from approvals.models import Approval, Notice
from runs import sweeper
from runs.models import Run
from tests import hints
from tests.between import put_back
from tests.loopback import Loopback, ok
from tests.postbox import Letter, Postbox
from tests.world import GOAL, World

OWNER, LEAD = "refunds@acme.example", "lead@acme.example"
SITE = "https://agent.example"


@pytest.fixture
def post(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Postbox]:
    """A mail server, and a site that knows it."""
    monkeypatch.setattr(notify, "_lanes", Lanes(most=notify.WORKERS, each=notify.EACH_PLACE))
    with Postbox() as server:
        world.settings(EMAIL_URL=server.url, PUBLIC_URL=SITE)
        yield server
    hints.thrown_away(queues.MAINTENANCE)


@pytest.fixture
def chat(world: World) -> Iterator[Loopback]:
    with Loopback() as server:
        server.on("/", ok({}))
        world.settings(NOTIFY_WEBHOOK_URL=server.url + "/services/a-secret-path-of-the-chat")
        yield server


def rows(run: Run | None = None) -> list[tuple[str, str, str, str]]:
    found = Notice.objects.order_by("id") if run is None else Notice.objects.filter(approval__run_id=run.pk)
    return [(n.kind, n.channel, n.address, n.state) for n in found.order_by("id")]


def shift(asked: Approval, share: float) -> None:
    """So much of a question's life has gone by."""
    life = (asked.expires_at - asked.requested_at).total_seconds()
    gone = life * share
    put_back(Approval.objects.filter(pk=asked.pk), requested_at=gone, expires_at=gone - life)
    due = Approval.objects.get(pk=asked.pk).notices_until
    if due is not None:
        put_back(Approval.objects.filter(pk=asked.pk), notices_until=1)


def subjects(post: Postbox) -> list[str]:
    return [str(letter.message["Subject"]) for letter in post.letters]


# --- by mail ---------------------------------------------------------------------------------------------------


def test_new_approval_is_mailed_to_the_owner_and_whom_he_names(world: World, post: Postbox) -> None:
    world.profile(notify={"email": [LEAD, OWNER]})
    run = world.start()
    assert rows(run) == [("asked", "email", OWNER, "due"), ("asked", "email", LEAD, "due")]
    assert notify.send_due() == 2
    assert {state for *_, state in rows(run)} == {"sent"}
    assert [letter.message["To"] for letter in post.letters] == [OWNER, LEAD]
    letter: Letter = post.letters[0]
    assert letter.message["Subject"] == "Needs a decision: refund of 2,000.00 INR, order 8472"
    assert (letter.message["Auto-Submitted"], letter.message["From"]) == ("auto-generated", "agentsite@localhost")
    page = reverse("admin:approvals_approval_change", args=[world.approval(run).pk])
    assert f"{SITE}{page}" in letter.text and "sign in" in letter.text and "Expires" in letter.text
    assert GOAL not in letter.text and "cust_5521" not in letter.text and world.posts() == []
    assert notify.send_due() == 0


def test_link_of_a_letter_decides_nothing_by_itself(world: World, post: Postbox) -> None:
    run = world.start()
    page = telling.REVIEW.format(world.approval(run).pk)
    for door in (world.browser(), world.browser("lead_18")):
        for query in ("", "?decision=approve", f"?decision=approve&action_hash={world.approval(run).action_hash}"):
            assert door.get(page + query).status_code == 200
    assert (world.approval(run).status, world.posts()) == ("pending", [])


def test_without_a_mail_server_no_letter_waits_for_one(world: World) -> None:
    run = world.start()
    assert (env.read().EMAIL_URL, rows(run)) == (None, [])


def test_owner_that_is_no_address_gets_no_letter(world: World, post: Postbox) -> None:
    world.profile(queue_owner="the refunds desk")
    assert rows(world.start()) == []


def test_rolled_back_question_tells_nobody(world: World, post: Postbox) -> None:
    from django.db import transaction

    run = world.admit()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        world.resume(run)
        assert Notice.objects.count() == 1
        raise ZeroDivisionError
    assert Notice.objects.count() == 0


# --- reminders, expiry, digest ---------------------------------------------------------------------------------


def test_reminders_come_at_half_and_near_the_end_once_each(world: World, post: Postbox) -> None:
    run = world.start()
    look = notify.Rounds().look
    look()
    assert [kind for kind, *_ in rows(run)] == ["asked"]
    for share, expected in ((0.51, "reminder_50"), (0.91, "reminder_90")):
        shift(world.approval(run), share)
        for _ in range(2):
            look()
        assert [kind for kind, *_ in rows(run)][-1] == expected
    assert [kind for kind, *_ in rows(run)] == ["asked", "reminder_50", "reminder_90"]
    assert world.approval(run).notices_until is None
    notify.send_due()
    assert [s.partition(":")[0] for s in subjects(post)] == [
        "Needs a decision", "Still waits for a decision", "About to expire",
    ]  # fmt: skip


def test_site_that_slept_through_the_half_reminds_once(world: World, post: Postbox) -> None:
    run = world.start()
    shift(world.approval(run), 0.95)
    for _ in range(3):
        notify.Rounds().look()
    assert [kind for kind, *_ in rows(run)] == ["asked", "reminder_90"]


def test_decided_approval_is_nobodys_reminder(world: World, post: Postbox) -> None:
    run = world.start()
    world.reject(run)
    shift(world.approval(run), 0.6)
    notify.Rounds().look()
    assert ([kind for kind, *_ in rows(run)], world.approval(run).notices_until) == (["asked"], None)
    notify.send_due()
    assert (rows(run), post.letters) == ([("asked", "email", OWNER, "moot")], [])


def test_second_person_is_asked_for_when_the_first_agreed(world: World, post: Postbox) -> None:
    world.limits(two_people_above="1500.00")
    run = world.start()
    world.approve(run, large=True)
    assert [kind for kind, *_ in rows(run)] == ["asked", "second_person"]
    notify.send_due()
    assert subjects(post)[1].startswith("Needs a second person: refund of 2,000.00 INR")
    assert "a different one must agree" in post.letters[1].text and "lead_17" not in post.letters[1].text
    assert world.posts() == []


def test_expiry_is_told_to_the_owner_as_no_rejection(world: World, post: Postbox) -> None:
    """M35: owner, client and customer are told; the run stands on the list of what may be asked again."""
    world.profile(approval_ttl_s=1)
    run = world.resume(world.start(callback_url="https://shop.example/"), until="approval_expired")
    assert ("expired", "email", OWNER, "due") in rows(run)
    notify.send_due()
    [letter] = [x for x in post.letters if str(x.message["Subject"]).startswith("Expired, undecided")]
    assert "no rejection" in letter.text and "ask again" in letter.text
    assert [hook.type for hook in run.webhooks.order_by("seq")][-1] == "run.approval_expired"
    assert "still waiting for a review" in world.said(run) and world.posts() == []
    desk = world.browser("ops_9", is_superuser=True)
    assert "req-8472" in desk.get("/admin/runs/run/?needs=ask").content.decode()


def test_digest_names_what_has_waited_since_before_it_began(world: World, post: Postbox) -> None:
    world.settings(NOTIFY_DIGEST_S="3600")
    run = world.start()
    Notice.objects.all().delete()
    period = int(clock.now().timestamp() // 3600)
    notify.leave_digests(period)
    assert rows() == []  # asked within the period: its own letter told of it
    shift(world.approval(run), 0.1)
    for _ in range(2):
        notify.leave_digests(period)
    assert rows() == [("digest", "email", OWNER, "due")]
    notify.leave_digests(period + 1)
    assert rows() == 2 * [("digest", "email", OWNER, "due")]
    notify.send_due()
    assert subjects(post)[0] == f"1 refund waits for a decision at {world.tenant}"
    assert "refund of 2,000.00 INR, order 8472: expires in" in post.letters[0].text
    world.reject(run)
    notify.leave_digests(period + 2)
    assert len(rows()) == 2  # nothing waits, nothing is told


# --- by chat ---------------------------------------------------------------------------------------------------


def test_chat_gets_what_slack_takes_and_its_address_is_in_no_row(world: World, post: Postbox, chat: Loopback) -> None:
    world.profile(queue_owner="")
    run = world.start()
    Approval.objects.filter(run_id=run.pk).update(order_id="8472<!here>&")  # as no order of ours is called
    assert rows(run) == [("asked", "chat", "NOTIFY_WEBHOOK_URL", "due")]
    notify.send_due()
    [call] = chat.calls
    document = json.loads(call.body)
    assert set(document) == {"text"}
    assert "refund of 2,000.00 INR, order 8472&lt;!here&gt;&amp;" in document["text"] and "<" not in document["text"]
    assert not Notice.objects.filter(address__contains="http").exists()


def test_chat_of_a_tenant_is_his_own(world: World, post: Postbox, chat: Loopback) -> None:
    world.settings(ACME_CHAT=chat.url + "/acme")
    world.profile(queue_owner="", notify={"webhook_env": "ACME_CHAT"})
    run = world.start()
    notify.send_due()
    assert (chat.targets(), rows(run)) == (["/acme"], [("asked", "chat", "ACME_CHAT", "sent")])


# --- failures --------------------------------------------------------------------------------------------------


def failing(world: World, run: Run) -> Notice:
    """Its next try, and the notice as it is then."""
    put_back(Notice.objects.filter(approval__run_id=run.pk, state="due"), due_at=1)
    notify.send_due()
    return Notice.objects.get(approval__run_id=run.pk)


def test_failure_blocks_nothing_is_tried_again_and_is_kept_at_last(world: World, post: Postbox) -> None:
    post.habits.data = "451 not now"
    run = world.start()
    row = failing(world, run)
    assert (row.state, row.error, row.tries) == ("due", "smtp_451", 1) and row.due_at is not None
    for _ in range(notices.MOST_TRIES - 1):
        row = failing(world, run)
    assert (row.state, row.tries, row.error, row.due_at) == ("failed", notices.MOST_TRIES, "smtp_451", None)
    assert post.letters == []
    world.approve(run)
    assert world.resume(run, until="completed").outcome == "refunded"  # nobody waits for a letter


@pytest.mark.parametrize(("answer", "state"), [("550 nobody here", "failed"), ("450 later", "due")])
def test_address_that_is_refused_for_good_is_not_tried_again(
    world: World, post: Postbox, answer: str, state: str
) -> None:
    post.habits.recipient = answer
    row = failing(world, world.start())
    assert (row.state, row.error) == (state, f"smtp_{answer[:3]}")


def test_server_that_is_away_or_hangs_is_tried_again_and_holds_up_no_chat(
    world: World, post: Postbox, chat: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "MAIL_TIMEOUT_S", 1)
    post.habits.hung = threading.Event()
    run = world.start()
    notify.send_due()
    post.habits.hung.set()
    assert {(c, s) for _, c, _, s in rows(run)} == {("email", "due"), ("chat", "sent")}
    assert len(chat.calls) == 1
    row = Notice.objects.get(approval__run_id=run.pk, channel="email")
    assert (row.error, row.tries) == ("no_connection", 1)


@pytest.mark.parametrize(("status", "slug"), [(500, "status_500"), (403, "status_403")])
def test_chat_that_says_no_is_tried_again(world: World, post: Postbox, chat: Loopback, status: int, slug: str) -> None:
    world.profile(queue_owner="")
    chat.on("/", ok({}, status), ok({}))
    run = world.start()
    row = failing(world, run)
    assert (row.state, row.error) == ("due", slug)
    assert failing(world, run).state == "sent"


def test_two_workers_send_a_letter_once(world: World, post: Postbox) -> None:
    world.start()
    first = notices.claim(shut=(), lease_s=60)
    assert first is not None and notices.claim(shut=(), lease_s=60) is None
    put_back(Notice.objects.all(), due_at=1)  # its worker died with it
    assert notify.send_due() == 1 and len(post.letters) == 1


def test_sweeper_has_due_notices_sent(world: World, post: Postbox) -> None:
    world.start()
    hints.thrown_away(queues.MAINTENANCE)
    assert sweeper.sweep() is not None and queues.depth(queues.MAINTENANCE) == 1


# --- the mail server -------------------------------------------------------------------------------------------


def test_login_is_what_the_url_says(world: World, post: Postbox) -> None:
    post.habits.login = "AHNpdGUAcEBzcw=="  # \0site\0p@ss
    world.settings(EMAIL_URL=post.url.replace("smtp://", "smtp://site:p%40ss@"))
    world.start()
    notify.send_due()
    assert len(post.letters) == 1


def test_server_elsewhere_without_starttls_gets_no_password(world: World, post: Postbox) -> None:
    post.habits.login = "AHNpdGUAcEBzcw=="
    world.settings(EMAIL_URL=post.url.replace("smtp://", "smtp://site:p%40ss@") + "?starttls=always")
    row = failing(world, world.start())
    assert (row.state, row.error, post.letters) == ("due", "no_connection", [])
    assert not [line for line in post.heard if line.startswith("AUTH")]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://mail.example", ("mail.example", 587, "", "", True, False)),
        ("smtps://u:p%3Aw@mail.example:2465", ("mail.example", 2465, "u", "p:w", False, True)),
        ("smtp://localhost:25", ("localhost", 25, "", "", False, False)),
        ("smtp://mail.example:25?starttls=never", ("mail.example", 25, "", "", False, False)),
        ("smtp://127.0.0.1:25?starttls=always", ("127.0.0.1", 25, "", "", True, False)),
    ],
)
def test_mail_url_says_how_to_speak(world: World, url: str, expected: tuple[Any, ...]) -> None:
    world.settings(EMAIL_URL=url)
    server = mail.server()
    assert server is not None and "p:w" not in repr(server)
    assert (server.host, server.port, server.user, server.password, server.starttls, server.tls) == expected


@pytest.mark.parametrize(
    "url", ["http://mail.example", "smtp://", "smtp://u:secret-word@mail.example:99999", "smtp://m.example?x=1",
            "smtp://m.example?starttls=maybe"]
)  # fmt: skip
def test_wrong_mail_url_stops_the_start_and_is_not_repeated(world: World, url: str) -> None:
    world.settings(EMAIL_URL=url)
    with pytest.raises(env.BadEnvironment) as caught:
        mail.server()
    assert "EMAIL_URL" in str(caught.value) and "secret-word" not in str(caught.value)
