"""Where mail goes: EMAIL_URL as the fields of a connection. Floor; sends nothing.

`smtps://` speaks TLS from the start. `smtp://` asks for STARTTLS and gives up without it, unless the server is on this
host; `?starttls=always` or `?starttls=never` say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from agentsite import env, redaction

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PORTS = {"smtp": 587, "smtps": 465}
WRONG = "configuration refused: EMAIL_URL: expected smtp://USER:PASSWORD@HOST:PORT or smtps://…"


@dataclass(frozen=True, kw_only=True)
class Server:
    """`starttls` and `tls` exclude each other."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    starttls: bool
    tls: bool


def server() -> Server | None:
    """The mail server of this site, or None. Raises BadEnvironment, which repeats no part of the URL."""
    given = env.read().EMAIL_URL
    if given is None:
        return None
    try:
        parts = urlsplit(given.get_secret_value())
        wish = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        known = parts.scheme in PORTS and bool(parts.hostname) and not set(wish) - {"starttls"}
        host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        raise env.BadEnvironment(WRONG) from None
    asked = wish.get("starttls", ["never" if host in LOOPBACK else "always"])[-1]
    if not known or asked not in ("always", "never"):
        raise env.BadEnvironment(WRONG)
    password = unquote(parts.password or "")
    redaction.keep(password)
    tls = parts.scheme == "smtps"
    return Server(
        host=host, port=port, user=unquote(parts.username or ""), password=password, tls=tls,
        starttls=not tls and asked == "always",
    )  # fmt: skip
