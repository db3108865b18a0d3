"""The interface under /v1, which any tenant's business system offers (`docs/commerce-openapi.yaml`)."""

from urllib.parse import unquote

from tools.sandbox.behaviour import current_behaviour
from tools.sandbox.exchange import Answer, Request, Tokens, answer
from tools.sandbox.ledger import find_order, find_payment, list_payments, list_refunds
from tools.sandbox.refunding import post_refund
from tools.sandbox.refusals import Refused, invalid
from tools.sandbox.store import Store

_ORDERS = "/v1/orders/"
_FILTERS = frozenset({"order_id", "payment_id", "idempotency_key"})


class Interface:
    """Answers what is asked; raises `Refused` where it will not."""

    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store = store
        self._tokens = tokens

    def reply(self, request: Request) -> Answer:
        """One request, one transaction, committed when this returns."""
        path = request.path
        if path.startswith(_ORDERS) and len(path) > len(_ORDERS):
            self._admit(request, {"GET": "read"})
            return self._order(unquote(path.removeprefix(_ORDERS)))
        if path == "/v1/payments":
            self._admit(request, {"GET": "read"})
            return self._payments(request)
        if path == "/v1/refunds":
            self._admit(request, {"GET": "read", "POST": "write"})
            return self._post_refund(request) if request.method == "POST" else self._refunds(request)
        raise Refused(404, "not-found")

    def _admit(self, request: Request, credentials: dict[str, str]) -> None:
        if request.method not in credentials:
            raise Refused(405, "method-not-allowed")
        self._tokens.demand(credentials[request.method], request.bearer)

    def _order(self, order_id: str) -> Answer:
        with self._store.transaction() as db:
            return answer(200, find_order(db, order_id))

    def _payments(self, request: Request) -> Answer:
        wanted = request.parameters(frozenset({"order_id"}))
        if not wanted:
            raise invalid("query: order_id is expected")
        with self._store.transaction() as db:
            return answer(200, {"payments": list_payments(db, wanted["order_id"])})

    def _refunds(self, request: Request) -> Answer:
        wanted = request.parameters(_FILTERS)
        if not wanted:
            raise invalid("query: order_id, payment_id or idempotency_key is expected")
        with self._store.transaction() as db:
            behaviour = current_behaviour(db)
            # A backend that keeps no keys cannot look for one; an empty list would say that there is no refund.
            if "idempotency_key" in wanted and not behaviour.lists_keys:
                raise Refused(400, "filter-not-supported", "this system does not list by idempotency_key")
            if "order_id" in wanted:
                find_order(db, wanted["order_id"])
            if "payment_id" in wanted:
                find_payment(db, wanted["payment_id"])
            return answer(200, {"refunds": list_refunds(db, wanted, behaviour)})

    def _post_refund(self, request: Request) -> Answer:
        body = request.document()
        with self._store.transaction() as db:
            return answer(*post_refund(db, request.key, body, request.target))
