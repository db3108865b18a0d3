"""One request and one answer as values, between the sockets and the rules."""

import hmac
import json
from dataclasses import dataclass
from urllib.parse import parse_qsl

from tools.sandbox.refusals import Document, Refused, invalid, parse_object


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The two credentials: reads and the one write never accept each other's."""

    read: str
    write: str

    def named(self, bearer: str | None) -> str:
        """Which credential was presented, for the log: `read`, `write`, `unknown` or `none`."""
        if bearer is None:
            return "none"
        if _same(bearer, self.read):
            return "read"
        return "write" if _same(bearer, self.write) else "unknown"

    def demand(self, name: str, bearer: str | None) -> None:
        """Raises `Refused`: 403 for the other credential, 401 for none or an unknown one."""
        wanted, other = (self.read, self.write) if name == "read" else (self.write, self.read)
        if bearer is not None and _same(bearer, wanted):
            return
        if bearer is not None and _same(bearer, other):
            raise Refused(403, "wrong-credential", f"the {name} credential is expected")
        raise Refused(401, "unauthorised", f"the {name} credential is expected as a bearer token")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What arrived. `raw` is the body, or why it could not be read; `target` is path and query as they were sent."""

    method: str
    path: str
    query: str
    bearer: str | None
    key: str | None
    trace_id: str | None
    raw: bytes | Refused

    @property
    def target(self) -> str:
        """What faults match against."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def parameters(self, known: frozenset[str]) -> dict[str, str]:
        """The query; raises `Refused` 400 for one that is unknown, empty or given twice."""
        pairs = parse_qsl(self.query, keep_blank_values=True)
        found = dict(pairs)
        if len(found) != len(pairs) or not set(found) <= known or "" in found.values():
            raise invalid(f"query: {', '.join(sorted(known))} at most, each once and not empty")
        return found

    def document(self) -> Document:
        """The body; raises `Refused` 400, 411 or 413."""
        if isinstance(self.raw, Refused):
            raise self.raw
        return parse_object(self.raw)

    def seen(self) -> object:
        """The body for the log of calls: JSON, else the text as it came, else null."""
        if isinstance(self.raw, Refused) or not self.raw:
            return None
        try:
            return parse_object(self.raw)
        except Refused:
            return self.raw.decode("utf-8", "replace")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is sent: a status, and a body that the faults may have made into anything."""

    status: int
    body: bytes


def answer(status: int, document: Document) -> Answer:
    """An ordinary JSON answer."""
    return Answer(status=status, body=json.dumps(document).encode())


def refusal(refused: Refused) -> Answer:
    """The JSON answer to a request that was refused."""
    return answer(refused.status, refused.document())


def _same(presented: str, secret: str) -> bool:
    return hmac.compare_digest(presented.encode("utf-8", "replace"), secret.encode())
