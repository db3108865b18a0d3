"""Which kind of provider the sandbox plays: what it promises and keeps, changed by `POST /_config`."""

import json
import math
import sqlite3
from dataclasses import asdict, dataclass, fields, replace

from tools.sandbox.refusals import Document, canonical, invalid, refuse_unknown


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Times are seconds."""

    honours_keys: bool = True
    lists_keys: bool = True
    lists_metadata: bool = True
    key_life_s: float = 86400
    lag_s: float = 0
    supports_expected_refunded: bool = True
    check_remaining: bool = True

    def document(self) -> Document:
        """As `GET /_config` shows it."""
        return asdict(self)


_FIELDS = {field.name: field.type for field in fields(Behaviour)}


def current_behaviour(db: sqlite3.Connection) -> Behaviour:
    """What was configured, the defaults for the rest."""
    row = db.execute("SELECT value FROM config WHERE name = 'behaviour'").fetchone()
    return Behaviour(**json.loads(row["value"])) if row else Behaviour()


def change_behaviour(db: sqlite3.Connection, body: Document) -> Behaviour:
    """Changes the named fields only; raises `Refused` 400."""
    refuse_unknown(body, frozenset(_FIELDS))
    for name, value in body.items():
        _check(name, value)
    changed = replace(current_behaviour(db), **body)
    db.execute("INSERT OR REPLACE INTO config VALUES ('behaviour', ?)", (canonical(changed.document()),))
    return changed


def _check(name: str, value: object) -> None:
    if _FIELDS[name] is bool:
        if not isinstance(value, bool):
            raise invalid(f"{name}: true or false is expected")
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise invalid(f"{name}: a number of seconds is expected")
