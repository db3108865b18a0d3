"""One request from its arrival to its answer: the log, the fault it meets, the rules."""

import time
from ipaddress import IPv6Address, ip_address
from typing import Protocol, cast
from urllib.parse import parse_qsl, urlsplit

from tools.sandbox.calls import record_answer, record_call
from tools.sandbox.controls import reply_to_control
from tools.sandbox.exchange import Answer, Request, Tokens, refusal
from tools.sandbox.faults import NO_FAULT, Fault, take_fault
from tools.sandbox.interface import Interface
from tools.sandbox.refusals import Refused
from tools.sandbox.store import Store
from tools.sandbox.wire import Wire

GARBAGE = b"<html>\xff\xfe not what was asked for"


class Shop(Protocol):
    """What a handler finds on its server."""

    store: Store
    tokens: Tokens
    interface: Interface


class Handler(Wire):
    """Faults spoil only what stands under /v1: the controls have to work whatever is wrong with the world."""

    def do_GET(self) -> None:
        """Every method comes here; which are allowed is for the rules to say, with a JSON answer."""
        try:
            self._reply()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_GET

    @property
    def _shop(self) -> Shop:
        return cast(Shop, self.server)

    def _reply(self) -> None:
        if f"{urlsplit(self.path).path}/".startswith("/v1/"):
            self._reply_as_business()
        else:
            self.send(self._control(self.received()))

    def _control(self, request: Request) -> Answer:
        try:
            if not request.path.startswith("/_"):
                raise Refused(404, "not-found")
            if not _is_loopback(self.client_address[0]):
                raise Refused(403, "loopback-only")
            return reply_to_control(self._shop.store, request)
        except Refused as refused:
            return refusal(refused)

    def _reply_as_business(self) -> None:
        with self._shop.store.transaction() as db:
            fault = take_fault(db, self.command, self.path)
        if fault.name == "drop_before":
            self._record(self.received(body=False), fault)
            self.reset()
            return
        request = self.received()
        self._answer_recorded(request, self._record(request, fault), fault)

    def _answer_recorded(self, request: Request, seq: int, fault: Fault) -> None:
        answer = self._spoilt(request, fault)
        with self._shop.store.transaction() as db:
            # Before the sending: who has the answer in hand finds it in the log.
            record_answer(db, seq, None if fault.name == "drop_after" else answer.status)
        self._send_by(fault, answer)

    def _record(self, request: Request, fault: Fault) -> int:
        seen = {
            "query": dict(parse_qsl(request.query, keep_blank_values=True)),
            "credential": self._shop.tokens.named(request.bearer),
            "idempotency_key": request.key,
            "trace_id": request.trace_id,
            "body": request.seen(),
            "fault": None if fault is NO_FAULT else fault.name,
        }
        with self._shop.store.transaction() as db:
            return record_call(db, request.method, request.path, seen)

    def _spoilt(self, request: Request, fault: Fault) -> Answer:
        """The answer under a fault; what the fault comes before is not done at all."""
        if fault.name == "status":
            return refusal(Refused(int(fault.argument), "fault-injected"))
        if fault.name == "json":
            return Answer(status=200, body=fault.argument.encode())
        if fault.name == "delay":
            time.sleep(fault.seconds)
        answer = self._business(request)
        if fault.name == "status_after":
            return refusal(Refused(int(fault.argument), "fault-injected"))
        if fault.name in ("garbage", "empty"):
            return Answer(status=answer.status, body=GARBAGE if fault.name == "garbage" else b"")
        if fault.name == "delay_after":
            time.sleep(fault.seconds)
        return answer

    def _business(self, request: Request) -> Answer:
        try:
            return self._shop.interface.reply(request)
        except Refused as refused:
            return refusal(refused)

    def _send_by(self, fault: Fault, answer: Answer) -> None:
        if fault.name == "drop_after":
            self.close_connection = True
        elif fault.name == "truncate":
            self.close_connection = True
            self.send(answer, sent=len(answer.body) // 2)
        elif fault.name == "stall_body":
            self.send(answer, sent=0)
            self.drip(answer.body, fault.seconds)
        else:
            self.send(answer)


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
