"""Where webhooks may go: public https hosts, by their letters alone."""

from __future__ import annotations

import pytest

from agentsite.addresses import fault as callback_fault


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/hooks",
        "https://shop.example:8443/hooks?x=1",
        "https://93.184.215.14/hooks",
        "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/hooks",
        "https://xn--bcher-kva.example/",
    ],
)
def test_callback_to_a_public_https_host_is_taken(url: str) -> None:
    assert callback_fault(url) is None


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://shop.example/", "must be an https URL"),
        ("ftp://shop.example/", "must be an https URL"),
        ("//shop.example/", "must be an https URL"),
        ("https://user:pw@shop.example/", "may hold no user name or password"),
        ("https://localhost/", "names no public host"),
        ("https://LOCALHOST./", "names no public host"),
        ("https://a.localhost/", "names no public host"),
        ("https://printer.local/", "names no public host"),
        ("https://db.internal/", "names no public host"),
        ("https://intranet/", "names no public host"),
        ("https://127.0.0.1/", "names a private host"),
        ("https://127.1/", "names no public host"),
        ("https://2130706433/", "names no public host"),
        ("https://0x7f.0.0.1/", "names no public host"),
        ("https://0x7f000001/", "names no public host"),
        ("https://shop.example.0x1/", "names no public host"),
        ("https://10.0.0.7/", "names a private host"),
        ("https://192.168.1.1/", "names a private host"),
        ("https://172.16.0.1/", "names a private host"),
        ("https://169.254.169.254/latest/meta-data", "names a private host"),
        ("https://100.64.0.1/", "names a private host"),
        ("https://0.0.0.0/", "names a private host"),
        ("https://224.0.0.1/", "names a private host"),
        ("https://[::1]/", "names a private host"),
        ("https://[::]/", "names a private host"),
        ("https://[fe80::1]/", "names a private host"),
        ("https://[fd00::1]/", "names a private host"),
        ("https://[::ffff:127.0.0.1]/", "names a private host"),
        ("https://[64:ff9b::7f00:1]/", "names a private host"),
        ("https://[2002:7f00:1::]/", "names a private host"),
        ("https://", "names no public host"),
        ("https:///path", "names no public host"),
        ("https://[::1", "not a URL"),
        ("https://shop.example:99999/", "not a URL"),
        ("https://shop.example:0/", "not a URL"),
        ("https://good.example\\@127.0.0.1/", "only printable ASCII without spaces and backslashes"),
        ("https://shop.example/a b", "only printable ASCII without spaces and backslashes"),
        ("https://shop.example\n.evil/", "only printable ASCII without spaces and backslashes"),
        ("https://１２７.0.0.1/", "only printable ASCII without spaces and backslashes"),
        ("https://shop_1.example/", "names no public host"),
    ],
)
def test_callback_elsewhere_is_refused(url: str, fault: str) -> None:
    assert callback_fault(url) == fault
