"""Where a program outside may be called: public https hosts, and the hosts the site names itself. Floor; no domain.

`fault` judges a URL by its letters alone and looks nothing up; whoever connects asks `public` about the very address
that he connects to, so that a name that leads elsewhere a moment later leads nowhere.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from agentsite import env

HOST = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+")
NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home", ".corp", ".home.arpa", ".onion")
# Ranges that carry an IPv4 address inside an IPv6 one and so lead into private networks by a side door.
TRANSLATED = tuple(ipaddress.ip_network(n) for n in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
UNSAFE_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")
PORTS = {"http": 80, "https": 443}


def fault(url: str) -> str | None:
    """Why a URL may not be called, or None. Literal addresses and names only."""
    if UNSAFE_IN_URL.search(url) or not url.isascii():
        return "only printable ASCII without spaces and backslashes"
    try:
        parts = urlsplit(url)
        port_fault = parts.port == 0
    except ValueError:
        return "not a URL"
    named = _named(parts)
    if parts.scheme != "https" and not (named and parts.scheme == "http"):
        return "must be an https URL"
    if parts.username is not None or parts.password is not None:
        return "may hold no user name or password"
    if port_fault:
        return "not a URL"
    return None if named else _host_fault(parts)


def place(url: str) -> str:
    """`host:port` of a URL, in lower case; what is no URL is a place of its own."""
    try:
        parts = urlsplit(url)
        return _place(parts.hostname or "", parts.port or PORTS.get(parts.scheme, 443))
    except ValueError:
        return ""


def allowed(host: str, port: int) -> bool:
    """Whether the site names this host, or this port of it, as one that may be private (WEBHOOK_PRIVATE_HOSTS)."""
    names = {name.lower() for name in env.read().WEBHOOK_PRIVATE_HOSTS}
    host = host.lower().rstrip(".").strip("[]")
    return bool(names & {host, f"[{host}]", _place(host, port)})


def public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is on the public internet and carries no other address inside."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return public(address.ipv4_mapped)
        # Addresses of one site (`fec0::/10`) are out of use, not out of networks; Python calls them global.
        if address.is_site_local or any(address in network for network in TRANSLATED):
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _named(parts: SplitResult) -> bool:
    return allowed(parts.hostname or "", parts.port or PORTS.get(parts.scheme, 443))


def _host_fault(parts: SplitResult) -> str | None:
    host = (parts.hostname or "").rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None if _public_name(host) else "names no public host"
    return None if public(address) else "names a private host"


def _public_name(host: str) -> bool:
    # A last label that is a number is an address in disguise (`127.1`, `0x7f.0.0.1`, `2130706433`).
    if len(host) > 253 or not HOST.fullmatch(host) or NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]):
        return False
    return not host.endswith(PRIVATE_ENDINGS)
