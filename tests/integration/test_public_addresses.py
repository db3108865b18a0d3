"""Whoever a client names is called at a public address or not at all, checked where the connection is made."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentsite import addresses, env
from tests.loopback import Loopback, ok
from tools.adapters import http, outgoing

pytestmark = pytest.mark.any_database

PUBLIC, PUBLIC_6 = "93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
HOME = "127.0.0.1"
Names = Callable[..., None]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """What the name server answers, one answer after the other; the last one stays."""

    def answers(*lists: list[str]) -> None:
        left = list(lists)

        def getaddrinfo(host: str, port: int, *args: Any, **more: Any) -> list[Any]:
            found = left.pop(0) if len(left) > 1 else left[0]
            family = {True: socket.AF_INET6, False: socket.AF_INET}
            return [(family[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    return answers


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a socket was opened to; none of them answers."""
    seen: list[str] = []

    def create_connection(address: tuple[str, int], *args: Any, **more: Any) -> socket.socket:
        seen.append(address[0])
        raise OSError("nobody there")

    monkeypatch.setattr(socket, "create_connection", create_connection)
    return seen


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    def hosts(*given: str) -> None:
        monkeypatch.setenv("WEBHOOK_PRIVATE_HOSTS", ",".join(given))
        env.read.cache_clear()

    hosts()
    yield hosts
    monkeypatch.undo()
    env.read.cache_clear()


def call(url: str, timeout_s: float = 5) -> int:
    return outgoing.post(http.for_outside(), url, headers={}, body=b"{}", timeout_s=timeout_s).status


PRIVATE = [
    "127.0.0.1", "10.0.0.7", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1%eth0", "fd00::1", "ff02::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::5db8:d70e", "2002:7f00:1::", "2001:0:53aa:64c::1", "198.18.0.1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_name_that_leads_to_a_private_address_is_not_called(
    allow: Names, names: Names, connected: list[str], address: str
) -> None:
    names([address])
    with pytest.raises(http.PrivateAddress):
        call("https://shop.example/hooks")
    assert connected == []


def test_name_is_looked_up_once_and_the_checked_address_is_called(
    allow: Names, names: Names, connected: list[str]
) -> None:
    """Rebinding: public when it is looked at, private a moment later."""
    names([PUBLIC], [HOME])
    with pytest.raises(http.ConnectFailed):
        call("https://shop.example/hooks")
    assert connected == [PUBLIC]
    with pytest.raises(http.PrivateAddress):
        call("https://shop.example/hooks")
    assert connected == [PUBLIC]


def test_of_several_addresses_only_public_ones_are_called(allow: Names, names: Names, connected: list[str]) -> None:
    names([HOME, PUBLIC, "10.0.0.1", PUBLIC_6, PUBLIC])
    with pytest.raises(http.ConnectFailed):
        call("https://shop.example/hooks")
    assert connected == [PUBLIC, PUBLIC_6]


def test_name_with_many_addresses_is_not_tried_for_ever(allow: Names, names: Names, connected: list[str]) -> None:
    names([f"93.184.215.{n}" for n in range(1, 60)])
    with pytest.raises(http.ConnectFailed):
        call("https://shop.example/hooks")
    assert len(connected) == http.MAX_ADDRESSES


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]"])
def test_literal_address_is_checked_too(allow: Names, connected: list[str], host: str) -> None:
    with pytest.raises(http.ConnectFailed):
        call(f"https://{host}/hooks")
    assert connected == []


def test_name_server_that_says_nothing_takes_no_longer_than_the_call(
    allow: Names, connected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: let_go.wait(60) and [])
    try:
        with pytest.raises(http.ConnectFailed):
            call("https://shop.example/", timeout_s=0.2)
    finally:
        let_go.set()
    assert connected == []


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "unknown"), UnicodeError("label too long")])
def test_unknown_name_is_a_failed_connection(allow: Names, monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> Any:
        raise failure

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(http.ConnectFailed):
        call("https://shop.example/")


def test_named_host_is_called_wherever_it_leads_and_keeps_its_name(allow: Names, names: Names) -> None:
    with Loopback() as server:
        server.on("/", ok({}))
        port = server.server_address[1]
        allow(f"hooks.test:{port}")
        names([HOME])
        assert call(f"http://hooks.test:{port}/a") == 200
        assert server.calls[0].headers["host"] == f"hooks.test:{port}"
        with pytest.raises(http.PrivateAddress):
            call(f"http://other.test:{port}/a")
        assert len(server.calls) == 1


def test_redirect_is_an_answer_and_not_followed(allow: Names) -> None:
    with Loopback() as server:
        allow(HOME)
        server.on("/", ok({}, 307, (("Location", server.url + "/elsewhere"),)))
        assert call(server.url + "/hooks") == 307
        assert server.targets() == ["/hooks"]


@pytest.mark.parametrize(
    ("named", "url", "fault"),
    [
        ("hooks.test", "http://hooks.test/a", None),
        ("hooks.test", "http://hooks.test:9000/a", None),
        ("Hooks.Test", "https://HOOKS.TEST./a", None),
        ("hooks.test:9000", "http://hooks.test:9000/a", None),
        ("hooks.test:9000", "http://hooks.test:9001/a", "must be an https URL"),
        ("hooks.test:80", "http://hooks.test/a", None),
        ("10.0.0.7", "https://10.0.0.7/a", None),
        ("[::1]:8080", "http://[::1]:8080/a", None),
        ("::1", "http://[::1]:8080/a", None),
        ("hooks.test", "http://user:pw@hooks.test/a", "may hold no user name or password"),
        ("hooks.test", "ftp://hooks.test/a", "must be an https URL"),
        ("hooks.test", "https://a.hooks.test.local/a", "names no public host"),
        ("", "http://hooks.test/a", "must be an https URL"),
    ],
)
def test_named_hosts_are_let_through_by_letters_too(allow: Names, named: str, url: str, fault: str | None) -> None:
    allow(named)
    assert addresses.fault(url) == fault
