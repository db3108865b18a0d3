"""The commit directly before the socket: a write is marked as sent, once, and noted outside the database.

Part of the store. Whoever did not make that commit may not send.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connection, transaction

from agentsite import clock, dbtime, env, statements
from runs import numbering
from runs.contracts import NewEvent, RunState, SeenWrite
from runs.errors import Fenced
from runs.store import anchored, events, inserts, left, money_rows
from runs.store.inserts import Statement
from runs.store.lease import raw_id
from tools.contracts import SentMark

SEND_MARGIN_S = 5.0
LOCK_RUN = "SELECT {now}, version, lease_token, last_seq, chain_head FROM runs_run WHERE id = %s{update}"
MARK = (
    "UPDATE runs_attempt SET sent_at = {now}, gives_up_at = {plus} WHERE sent_at IS NULL AND id = (SELECT id FROM "
    "runs_attempt WHERE write_id = %s AND sent_at IS NULL AND answer = '' ORDER BY number LIMIT 1) RETURNING number"
)
NOTED = (
    "UPDATE runs_run SET last_seq = %s, chain_head = %s, write_attempts = write_attempts + 1 WHERE id = %s "
    "RETURNING 1{left}"
)
SENT = "UPDATE runs_write SET state = 'sent' WHERE key = %s"


def mark_sent(run: RunState, write: SeenWrite) -> SentMark | None:
    """The commit directly before the socket: fenced, once per attempt. None: no right to send (spent, or stopped).

    Stop switches and shadow mode are held still with it: nothing is marked once one has committed (M119, M110). Nor is
    anything on a database that lacks what this host sent before, nor without a line in this host's anchor log (M124).
    Only the process that got the mark may POST, once, within its window of seconds on the monotonic clock.
    """
    if anchored.demands():
        return None
    window = env.read().WRITE_TIMEOUT_S + SEND_MARGIN_S
    with transaction.atomic():
        if money_rows.held_still(run)[0] is not None:
            return None
        here, at = _locked_run(run)
        marked_at = clock.monotonic()  # before the database fixes gives_up_at: our window ends first
        number = _marked(write.key, window)
        if number is None:
            return None
        sent = _note_sent(run, here, write, number)
    anchored.keep(run, write, sent, at=at)
    return SentMark(attempt=number, marked_at=marked_at, window_s=window)


def _locked_run(run: RunState) -> tuple[events.Position, datetime]:
    """Where the run's record stands, its row held, and the time. Raises Fenced."""
    with statements.cursor() as cursor:
        cursor.execute(
            LOCK_RUN.format(now=dbtime.now_sql(), update=money_rows.UPDATE.get(connection.vendor, "")),
            [raw_id(run.run_id)],
        )
        at, version, token, seq, head = cursor.fetchone()
    if version != run.version or token != run.lease:
        raise Fenced(run.run_id)
    now = dbtime.moment(at)
    assert now is not None, "the database always knows the time"
    return events.Position(seq=seq, head=head), now


def _marked(key: str, window_s: float) -> int | None:
    """The number of the attempt that is marked as sent by this; None where none is prepared."""
    with statements.cursor() as cursor:
        cursor.execute(MARK.format(now=dbtime.now_sql(), plus=dbtime.plus_sql()), [dbtime.plus_param(window_s), key])
        row = cursor.fetchone()
    return None if row is None else int(row[0])


def _note_sent(run: RunState, here: events.Position, write: SeenWrite, number: int) -> events.Position:
    """The write's state, its order's epoch and the event with its place in the run's record."""
    span = numbering.of_write(run, write.key)
    event = NewEvent(type="write.sent", meta={"key": write.key, "attempt": number}, span=span)
    sent, about = left.Written(key=write.key, columns={"state": "sent"}), left.about([event])
    also = [Statement(sql=SENT, params=[write.key]), money_rows.bumped(run.tenant_id, write.order_id)]

    def note(ends: Sequence[events.Position], rows: Sequence[Statement]) -> left.Rows | None:
        params = [ends[-1].seq, ends[-1].head, raw_id(run.run_id)]
        noted = Statement(sql=NOTED.format(left=left.returning(about)), params=params)
        returned = inserts.run_with([*also, *rows], noted)
        return left.found(about, returned[1:], [sent]) if returned is not None else None

    return events.move(run.run_id, here, [(run.version, [event])], note)
