"""The one client module: an HTTP call with a limit on everything. It decides nothing and knows no system behind it.

    HttpError
    ├── ConnectFailed      surely nothing was sent: no name, refused, no connection in time, an impossible request
    │   └── PrivateAddress a name that leads to no public address, where only those may be called
    ├── TransportFailed    anything after that: the other side may have got the request
    │   └── CutShort       the head of an answer came, the rest did not
    ├── TooSlow            the call's time was over; what was sent may have been acted upon
    └── TooLarge           the answer is longer than the caller takes

httpx has no total timeout: its read timeout starts afresh with every byte. So the sockets below it look at one
deadline of the call, on connecting, sending and receiving alike, heads as well as bodies.
"""

from __future__ import annotations

import ipaddress
import math
import os
import socket
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import httpcore
import httpx

from agentsite import __version__, addresses, clock
from tools.adapters.answers import Reply as Reply
from tools.adapters.answers import Streamed as Streamed

CONNECT_TIMEOUT_S = 2.0
MAX_BYTES = 2_000_000
MAX_CONNECTIONS = 100
# Models answer in seconds where a business system takes milliseconds: many more calls are under way at once.
MAX_MODEL_CONNECTIONS = 2000
# Kept short: a connection the other side has just closed would make a write's outcome unknown for nothing.
KEEPALIVE_S = 5.0
HEADERS = {
    "User-Agent": f"agentsite/{__version__}", "Accept": "application/json", "Accept-Encoding": "identity",
    "Connection": "keep-alive",
}  # fmt: skip

EVENTS = "text/event-stream"
MAX_ADDRESSES = 4
"""Of one name that are tried."""
MAX_LOOKUPS = 64
"""Names looked up at once, each by a thread: the resolver knows no deadline. More than a zone that never answers can
hold: whoever waits for it gives up after CONNECT_TIMEOUT_S, its thread half a minute later."""

_ends_at: ContextVar[float] = ContextVar("ends_at", default=math.inf)
# Seconds a socket may wait for the next bytes of an answer; without a limit of its own until a stream has begun.
_silence_s: ContextVar[float] = ContextVar("silence_s", default=math.inf)


class HttpError(Exception):
    """Base. The message is a word for logs; it never holds a URL, a header or a body."""


class ConnectFailed(HttpError):
    pass


class PrivateAddress(ConnectFailed):
    pass


class TransportFailed(HttpError):
    pass


class CutShort(TransportFailed):
    pass


class TooSlow(HttpError):
    pass


class TooLarge(HttpError):
    pass


class Client:
    """Pooled and safe under threads; not across a fork (`shared`).

    httpx's own client is left out: it merges cookies, which tenants that share this one must not, and environment,
    redirects and sign-in, which are none of ours; that costs as much as the exchange.
    """

    def __init__(self, transport: httpx.BaseTransport | None = None) -> None:
        self._transport = transport or _transport()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_bytes: int = MAX_BYTES,
        before_send: Callable[[], None] | None = None,
    ) -> Reply:
        """One exchange within `timeout_s` seconds in all; a redirect is an answer like any other.

        `before_send` runs directly before the request is handed to the sockets; what it raises ends the call.
        No byte leaves after the deadline, so a process that was frozen in between sends nothing late.
        Raises HttpError.
        """
        with _translated(ConnectFailed):
            request = _request(method, url, headers, timeout_s, params, body)
        mark = _ends_at.set(clock.monotonic() + timeout_s)
        try:
            if before_send is not None:
                before_send()
            return self._exchange(request, max_bytes)
        finally:
            _ends_at.reset(mark)

    @contextmanager
    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        silence_s: float,
        body: bytes | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Iterator[Streamed]:
        """One exchange within `timeout_s` seconds in all, its body handed on as it comes. Leaving early ends the
        connection. Raises HttpError, while the body is read too.

        `silence_s` bounds each silence within a body of events, in seconds, from its first byte on. The wait for that
        byte, and an answer that is no stream of events, may take all of `timeout_s`.
        """
        with _translated(ConnectFailed):
            request = _request(method, url, headers, timeout_s, None, body)
        mark, quiet = _ends_at.set(clock.monotonic() + timeout_s), _silence_s.set(math.inf)
        try:
            with _translated(TransportFailed):
                response = self._transport.handle_request(request)
            try:
                chunks = _bounded(_chunks(response, max_bytes), silence_s if _is_events(response) else math.inf)
                yield Streamed(status=response.status_code, headers=_headers(response), chunks=chunks)
            finally:
                response.close()
        finally:
            _silence_s.reset(quiet)
            _ends_at.reset(mark)

    def _exchange(self, request: httpx.Request, max_bytes: int) -> Reply:
        with _translated(TransportFailed):
            response = self._transport.handle_request(request)
        try:
            body = b"".join(_chunks(response, max_bytes))
        finally:
            response.close()
        return Reply(status=response.status_code, headers=_headers(response), body=body)

    def close(self) -> None:
        self._transport.close()


def shared() -> Client:
    """This process's client, made at first use; a forked child makes its own."""
    return _client_of(os.getpid())


@lru_cache(maxsize=1)
def _client_of(pid: int) -> Client:
    return Client()


def for_models() -> Client:
    """This process's client for model providers: no call to a model takes a connection from the business system's."""
    return _models_of(os.getpid())


@lru_cache(maxsize=1)
def _models_of(pid: int) -> Client:
    return Client(_transport(MAX_MODEL_CONNECTIONS))


def for_outside() -> Client:
    """This process's client for addresses that somebody outside chose: it connects to public ones alone, and to those
    that the site names itself (WEBHOOK_PRIVATE_HOSTS)."""
    return _outside_of(os.getpid())


@lru_cache(maxsize=1)
def _outside_of(pid: int) -> Client:
    return Client(_transport(backend=_Outside()))


def for_people() -> Client:
    """This process's client for the chat of the site's own people, whose address the site's operator chose."""
    return _people_of(os.getpid())


@lru_cache(maxsize=1)
def _people_of(pid: int) -> Client:
    return Client(_transport())


def _request(
    method: str, url: str, headers: Mapping[str, str], timeout_s: float, params: Mapping[str, str] | None,
    body: bytes | None,
) -> httpx.Request:  # fmt: skip
    given, where = {name.lower() for name in headers}, _parsed(url, tuple(params.items()) if params else ())
    ours = {name: value for name, value in HEADERS.items() if name.lower() not in given}
    connect = min(CONNECT_TIMEOUT_S, timeout_s)
    timeout = {"connect": connect, "read": timeout_s, "write": timeout_s, "pool": connect}
    sent = {**ours, **headers, **_signed_in(where)}
    return httpx.Request(method, where, headers=sent, content=body, extensions={"timeout": timeout})


def _signed_in(where: httpx.URL) -> Mapping[str, str]:
    """A name and a password that stand in the address, as its header."""
    if not where.userinfo:
        return {}
    pair = f"{where.username}:{where.password}".encode()
    return {"Authorization": f"Basic {b64encode(pair).decode('ascii')}"}


@lru_cache(maxsize=4096)
def _parsed(url: str, params: tuple[tuple[str, str], ...]) -> httpx.URL:
    """A step asks the same addresses again and again."""
    return httpx.URL(url, params=dict(params)) if params else httpx.URL(url)


def _headers(response: httpx.Response) -> dict[str, str]:
    """By names in lower case; one that came twice is joined."""
    found: dict[str, str] = {}
    try:
        for raw_name, raw_value in response.headers.raw:
            name, value = raw_name.decode("ascii").lower(), raw_value.decode("ascii")
            found[name] = f"{found[name]}, {value}" if name in found else value
    except UnicodeDecodeError:
        return dict(response.headers)
    return found


def _is_events(response: httpx.Response) -> bool:
    return EVENTS in response.headers.get("content-type", "").lower()


def _bounded(chunks: Iterator[bytes], silence_s: float) -> Iterator[bytes]:
    """The chunks; from the first on, no socket of this call waits longer than this for the next bytes."""
    for chunk in chunks:
        _silence_s.set(silence_s)
        yield chunk


def _chunks(response: httpx.Response, max_bytes: int) -> Iterator[bytes]:
    size = 0
    with _translated(CutShort):
        # Raw: a small answer that unpacks into gigabytes is not unpacked. An injected transport may have read it all.
        for chunk in (response.content,) if response.is_stream_consumed else response.iter_raw():
            size += len(chunk)
            if size > max_bytes:
                raise TooLarge("too_large")
            _left_s(None, httpx.ReadTimeout)
            yield chunk


@contextmanager
def _translated(otherwise: type[HttpError]) -> Iterator[None]:
    """httpx's errors as ours; what has no class of its own there becomes `otherwise`."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
        raise ConnectFailed(type(error).__name__) from None
    except httpx.TimeoutException as error:
        raise TooSlow(type(error).__name__) from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError) as error:
        raise otherwise(type(error).__name__) from None


def _left_s(timeout: float | None, failure: type[Exception]) -> float:
    """Seconds this operation may take; raises `failure` where the call's own time is over."""
    left = _ends_at.get() - clock.monotonic()
    if left <= 0:
        raise failure("the time of the call is over")
    return left if timeout is None else min(timeout, left)


class _Stream(httpcore.NetworkStream):
    """A socket that ends with the call, however often a slow peer restarts its own timeouts."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, min(_left_s(timeout, httpcore.ReadTimeout), _silence_s.get()))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left_s(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: object, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left_s(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))  # type: ignore[arg-type]

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    """Opens such sockets."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left_s(timeout, httpcore.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, left, local_address, socket_options))


class _Outside(_Backend):
    """Looks a name up once and connects to the very address it has checked; the name stays what TLS and Host say."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        found = _looked_up(host, port, _left_s(timeout, httpcore.ConnectTimeout))
        if not addresses.allowed(host, port):
            found = [one for one in found if addresses.public(ipaddress.ip_address(one))]
            if not found:
                raise PrivateAddress("private_address")
        failure: Exception = httpcore.ConnectError("no address")
        for one in found[:MAX_ADDRESSES]:
            try:
                return super().connect_tcp(one, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


def _looked_up(host: str, port: int, within_s: float) -> list[str]:
    """The addresses of a name, each once, in the resolver's order; it has no limit of its own, so a thread waits."""
    asked = _resolver_of(os.getpid()).submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        # An address of one interface alone (`fe80::1%eth0`) is never public.
        return list(dict.fromkeys(str(row[4][0]).partition("%")[0] for row in asked.result(timeout=within_s)))
    except TookTooLong:
        asked.cancel()  # one that did not begin is of no use any more
        raise httpcore.ConnectTimeout("the name server says nothing") from None
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(type(error).__name__) from None


@lru_cache(maxsize=1)
def _resolver_of(pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="names")


def _transport(connections: int = MAX_CONNECTIONS, backend: _Backend | None = None) -> httpx.HTTPTransport:
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=20, keepalive_expiry=KEEPALIVE_S)
    transport = httpx.HTTPTransport(trust_env=False, limits=limits, retries=0)
    # httpx passes no network backend on; a test with a drip-fed head fails the day this attribute moves.
    transport._pool._network_backend = backend or _Backend()
    return transport
