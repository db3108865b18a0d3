"""The paths that begin with an underscore: the test's hand on the world, without a token, from this machine only."""

import json
import sqlite3
from collections.abc import Callable
from urllib.parse import unquote

from tools.sandbox.behaviour import Behaviour, change_behaviour, current_behaviour
from tools.sandbox.calls import clear_calls, list_calls
from tools.sandbox.exchange import Answer, Request, answer
from tools.sandbox.faults import add_fault, list_faults
from tools.sandbox.ledger import show_payment, show_refund
from tools.sandbox.moment import now_s
from tools.sandbox.refusals import Document, Refused, invalid
from tools.sandbox.seeding import change_refund, make_refund_beside, seed
from tools.sandbox.store import Store

_REFUNDS = "/_refunds/"


def reply_to_control(store: Store, request: Request) -> Answer:
    """Answers one control request in one transaction; raises `Refused`."""
    act = _ROUTES.get((request.method, request.path))
    if act is None and request.method == "POST" and request.path.startswith(_REFUNDS):
        act = _change_refund
    if act is None:
        raise _no_route(request)
    with store.transaction() as db:
        return answer(*act(db, request))


def _no_route(request: Request) -> Refused:
    known = any(path == request.path for _, path in _ROUTES)
    return Refused(405, "method-not-allowed") if known else Refused(404, "not-found")


def _seed(db: sqlite3.Connection, request: Request) -> tuple[int, Document]:
    return 200, {"seeded": seed(db, request.document())}


def _list_calls(db: sqlite3.Connection, request: Request) -> tuple[int, Document]:
    wanted = request.parameters(frozenset({"method", "path"}))
    return 200, {"calls": list_calls(db, wanted.get("method", ""), wanted.get("path", ""))}


def _clear_calls(db: sqlite3.Connection, request: Request) -> tuple[int, Document]:
    if request.document() != {"clear": True}:
        raise invalid('{"clear": true} is expected')
    clear_calls(db)
    return 200, {"calls": []}


def _add_fault(db: sqlite3.Connection, request: Request) -> tuple[int, Document]:
    add_fault(db, request.document())
    return _list_faults(db, request)


def _list_faults(db: sqlite3.Connection, _: Request) -> tuple[int, Document]:
    return 200, {"faults": list_faults(db)}


def _change_behaviour(db: sqlite3.Connection, request: Request) -> tuple[int, Document]:
    return 200, change_behaviour(db, request.document()).document()


def _show_behaviour(db: sqlite3.Connection, _: Request) -> tuple[int, Document]:
    return 200, current_behaviour(db).document()


def _make_refund(db: sqlite3.Connection, request: Request) -> tuple[int, Document]:
    return 201, show_refund(make_refund_beside(db, request.document()), Behaviour())


def _change_refund(db: sqlite3.Connection, request: Request) -> tuple[int, Document]:
    refund_id = unquote(request.path.removeprefix(_REFUNDS))
    return 200, show_refund(change_refund(db, refund_id, request.document()), Behaviour())


def _show_state(db: sqlite3.Connection, _: Request) -> tuple[int, Document]:
    return 200, {
        "orders": [json.loads(row["document"]) for row in db.execute("SELECT * FROM orders ORDER BY order_id")],
        "payments": [show_payment(row) for row in db.execute("SELECT * FROM payments ORDER BY seq")],
        "refunds": [_whole_refund(row) for row in db.execute("SELECT * FROM refunds ORDER BY created_at, seq")],
        "keys": [_whole_key(row) for row in db.execute("SELECT * FROM keys ORDER BY made_at")],
        "calls": db.execute("SELECT COUNT(*) AS count FROM calls").fetchone()["count"],
        "faults": list_faults(db),
        "config": current_behaviour(db).document(),
    }


def _whole_refund(row: sqlite3.Row) -> Document:
    """With what no provider shows, and whatever the configuration hides."""
    inside = {"reason": row["reason"], "approval_id": row["approval_id"], "hidden": row["shown_from"] > now_s()}
    return {**show_refund(row, Behaviour()), **inside}


def _whole_key(row: sqlite3.Row) -> Document:
    return {"key": row["key"], "refund_id": row["refund_id"], "body": json.loads(row["body"])}


_ROUTES: dict[tuple[str, str], Callable[[sqlite3.Connection, Request], tuple[int, Document]]] = {
    ("POST", "/_seed"): _seed,
    ("GET", "/_calls"): _list_calls,
    ("POST", "/_calls"): _clear_calls,
    ("GET", "/_faults"): _list_faults,
    ("POST", "/_faults"): _add_fault,
    ("GET", "/_config"): _show_behaviour,
    ("POST", "/_config"): _change_behaviour,
    ("POST", "/_refunds"): _make_refund,
    ("GET", "/_state"): _show_state,
}
