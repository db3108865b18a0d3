"""Policy files into the registry: strict front matter, and which version is current. Never imports runs or approvals.

Markdown with YAML front matter (contract, section 7). The registry's word, not a text's, says which version is current.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Protocol

import yaml
from django.db import transaction

from agentsite import clock
from agentsite.canonical import sha256_bytes
from agentsite.tenants.models import Tenant
from agentsite.text import storable
from tools.models import PolicyCorpus, PolicyDocument, PolicyPassage
from tools.policy.passages import Section, TooMuchText, split

FIELDS = ("id", "version", "title", "effective_from", "effective_until", "status", "tenant")
STATUSES = ("current", "superseded", "draft")
TENANT_ID = re.compile(r"[a-z0-9_]{1,64}")
DOC_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
FRONT = re.compile(r"---[ \t]*\n(?P<front>.*?\n)---[ \t]*(?:\n(?P<body>.*))?", re.S)
MAX_BYTES = 1_000_000
MAX_FRONT = 4_000
MAX_VERSION = 999_999
MAX_TITLE = 300


class PolicyError(Exception):
    """Base of what may be wrong with a policy; the message is safe to show."""


class PolicyFormatError(PolicyError):
    """A file that is no policy; `field` names what is at fault, `file` the file where one was read."""

    def __init__(self, field: str, expected: str, *, file: str = "") -> None:
        super().__init__(f"{file + ': ' if file else ''}{field}: {expected}")
        self.field, self.expected, self.file = field, expected, file


class PolicyChanged(PolicyError):
    """A version that is stored came again with another text; a text changes under a new version, or by `replace`."""


class UnknownTenant(PolicyError):
    pass


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A policy as its file says it; `tenant` None: the file names none, and may be loaded for any."""

    tenant: str | None
    doc_id: str
    version: int
    title: str
    status: str
    effective_from: date | None
    effective_until: date | None
    body: str
    sections: tuple[Section, ...]

    @property
    def content_hash(self) -> str:
        return sha256_bytes(self.body.encode())


def load(tenant_id: str, text: str, *, replace: bool = False, force: bool = False) -> PolicyDocument:
    """Stores one version of a policy, in one transaction; the same file again changes nothing.

    A file that says `current` demotes the version that was current; a lower version does so only with `force`, and
    else is stored as superseded; a version that was superseded or withdrawn stays so without `force`, whatever its
    unchanged text says. Raises PolicyFormatError, PolicyChanged (unless `replace`), UnknownTenant.
    """
    return _store(tenant_id, [parse(text, tenant_id=tenant_id)], replace=replace, force=force)[0]


def load_directory(path: Path, tenant_id: str, *, replace: bool = False, force: bool = False) -> list[str]:
    """Loads every `*.md` of a directory, all or none; returns the pins (`POL-REF-004@v4`), lowest version first."""
    parsed = [_parse_file(file, tenant_id) for file in sorted(path.glob("*.md"))]
    ordered = sorted(parsed, key=lambda p: (p.doc_id, p.version))
    return [str(document) for document in _store(tenant_id, ordered, replace=replace, force=force)]


class Dated(Protocol):
    """A version's status and its own dates, of a row or of what was read of one."""

    @property
    def status(self) -> str: ...
    @property
    def effective_from(self) -> date | None: ...
    @property
    def effective_until(self) -> date | None: ...


def in_effect(document: Dated, today: date) -> bool:
    """Whether a version may support a decision: current by the registry and within its own dates, both inclusive."""
    return document.status == "current" and within_its_dates(document, today)


def within_its_dates(document: Dated, today: date) -> bool:
    """Whether a version's own dates, both inclusive, hold today; what its status is says another."""
    begun = document.effective_from is None or document.effective_from <= today
    ended = document.effective_until is not None and document.effective_until < today
    return begun and not ended


# --- the file ----------------------------------------------------------------------------------------------


def _parse_file(file: Path, tenant_id: str) -> Parsed:
    try:
        with file.open("rb") as opened:
            return parse(decoded(opened.read(MAX_BYTES + 1)), tenant_id=tenant_id)
    except PolicyFormatError as error:
        raise PolicyFormatError(error.field, error.expected, file=file.name) from None


def decoded(content: bytes) -> str:
    """A file's text. Raises PolicyFormatError."""
    if len(content) > MAX_BYTES:
        raise PolicyFormatError("file", f"at most {MAX_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise PolicyFormatError("file", "UTF-8 text") from None


def parse(text: str, *, tenant_id: str | None = None) -> Parsed:
    """A policy from its file's text. Raises PolicyFormatError that names the field, also where the file is of another
    tenant than it is loaded for."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise PolicyFormatError("file", f"at most {MAX_BYTES} bytes")
    plain = storable(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    match = FRONT.fullmatch(plain)
    if match is None or len(match["front"]) > MAX_FRONT:
        raise PolicyFormatError("front matter", "a block of YAML between two lines of three hyphens")
    front, body = _front(match["front"]), (match["body"] or "").strip("\n")
    checked = _checked(front, body, _sections(body))
    if tenant_id is not None and checked.tenant not in (None, tenant_id):
        raise PolicyFormatError("tenant", "the tenant it is loaded for, or none")
    return checked


def _sections(body: str) -> tuple[Section, ...]:
    try:
        sections = split(body)
    except TooMuchText as error:
        raise PolicyFormatError("body", f"less to keep together: {error}") from None
    if not sections:
        raise PolicyFormatError("body", "some text")
    return sections


def _front(text: str) -> dict[str, Any]:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise PolicyFormatError("front matter", "valid YAML") from None
    # A key that is a list may hold itself, or more of itself than there is room for.
    if not isinstance(node, yaml.MappingNode) or not all(isinstance(key, yaml.ScalarNode) for key, _ in node.value):
        raise PolicyFormatError("front matter", "a mapping of plain names")
    # Field by field: YAML alone keeps the last of two equal keys, and two statuses are a question, not an answer.
    front: dict[str, Any] = {}
    for key, value in node.value:
        name = key.value[:64]
        if name not in FIELDS or name in front:
            raise PolicyFormatError(name, f"each field once, of {', '.join(FIELDS)}")
        front[name] = _value(name, value)
    return front


def _value(name: str, node: yaml.Node) -> Any:
    try:
        return yaml.SafeLoader("").construct_document(node)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, OverflowError, RecursionError):
        # The last of these are how the parser meets a value that its tag (`!!int ''`, `!!timestamp x`) does not fit.
        raise PolicyFormatError(name, "a plain and possible value") from None


def _checked(front: dict[str, Any], body: str, sections: tuple[Section, ...]) -> Parsed:
    begins, ends = _date(front, "effective_from"), _date(front, "effective_until")
    if begins and ends and ends < begins:
        raise PolicyFormatError("effective_until", "a date not before effective_from")
    return Parsed(
        tenant=_tenant(front), doc_id=_doc_id(front), version=_version(front), title=_title(front),
        status=_status(front), effective_from=begins, effective_until=ends, body=body, sections=sections,
    )  # fmt: skip


def _tenant(front: dict[str, Any]) -> str | None:
    value = front.get("tenant")
    if value is not None and not (isinstance(value, str) and TENANT_ID.fullmatch(value)):
        raise PolicyFormatError("tenant", "a tenant's id: small letters, digits and underscore, 64 at most")
    return value


def _doc_id(front: dict[str, Any]) -> str:
    value = front.get("id")
    if not isinstance(value, str) or not DOC_ID.fullmatch(value):
        raise PolicyFormatError("id", "letters, digits, point, hyphen and underscore, 64 at most")
    return value


def _version(front: dict[str, Any]) -> int:
    value = front.get("version")
    if type(value) is not int or not 1 <= value <= MAX_VERSION:
        raise PolicyFormatError("version", "a positive integer")
    return value


def _title(front: dict[str, Any]) -> str:
    value = front.get("title")
    if not isinstance(value, str) or not 0 < len(value.strip()) <= MAX_TITLE:
        raise PolicyFormatError("title", f"a text of 1 to {MAX_TITLE} characters")
    return value.strip()


def _status(front: dict[str, Any]) -> str:
    value = front.get("status")
    if value not in STATUSES or not isinstance(value, str):
        raise PolicyFormatError("status", f"one of {', '.join(STATUSES)}")
    return value


def _date(front: dict[str, Any], name: str) -> date | None:
    value = front.get(name)
    if value is None or (isinstance(value, date) and not isinstance(value, datetime)):
        return value
    raise PolicyFormatError(name, "a date such as 2026-01-31, unquoted, or null")


# --- the registry ------------------------------------------------------------------------------------------


@transaction.atomic
def _store(tenant_id: str, parsed: list[Parsed], *, replace: bool, force: bool) -> list[PolicyDocument]:
    # The tenant's row is locked, so that two loads cannot both decide what is current.
    if not Tenant.objects.select_for_update(no_key=True).filter(id=tenant_id).exists():
        raise UnknownTenant(f"there is no tenant {tenant_id}")
    before = _standing(tenant_id)
    stored = [_store_one(tenant_id, one, replace=replace, force=force) for one in parsed]
    cut = [_cut(document, one.sections) for document, one in zip(stored, parsed, strict=True)]
    if any(cut) or _standing(tenant_id) != before:
        changed(tenant_id)
    return stored


def changed(tenant_id: str) -> None:
    """A new stamp for what is to be searched: every host builds its index again. Within the change's transaction."""
    now = {"stamp": secrets.token_hex(16), "changed_at": clock.now()}
    PolicyCorpus.objects.update_or_create(tenant_id=tenant_id, defaults=now)


def _standing(tenant_id: str) -> set[tuple[object, ...]]:
    rows = PolicyDocument.objects.filter(tenant_id=tenant_id)
    return set(rows.values_list("doc_id", "version", "title", "status", "content_hash"))


def _store_one(tenant_id: str, parsed: Parsed, *, replace: bool, force: bool) -> PolicyDocument:
    family = PolicyDocument.objects.filter(tenant_id=tenant_id, doc_id=parsed.doc_id)
    known = family.filter(version=parsed.version).first()
    if known and known.content_hash != parsed.content_hash and not replace:
        raise PolicyChanged(f"{known} is stored with another text; give it a new version, or replace it on purpose")
    current = family.exclude(version=parsed.version).filter(status="current").first()
    status = parsed.status if force else _status_in_force(known, current, parsed)
    if status == "current":
        family.filter(status="current").exclude(version=parsed.version).update(status="superseded")
    values = {
        "title": parsed.title, "status": status, "body": parsed.body, "content_hash": parsed.content_hash,
        "effective_from": parsed.effective_from, "effective_until": parsed.effective_until,
    }  # fmt: skip
    document, _ = PolicyDocument.objects.update_or_create(
        tenant_id=tenant_id, doc_id=parsed.doc_id, version=parsed.version, defaults=values
    )
    return document


def _status_in_force(known: PolicyDocument | None, current: PolicyDocument | None, parsed: Parsed) -> str:
    # An old file that still calls itself current, loaded again, must not take over from a newer version, nor bring
    # back what a person withdrew since: of a text that is stored, the registry alone says whether it is current.
    is_older = current is not None and current.version > parsed.version
    is_ended = known is not None and known.status == "superseded" and known.content_hash == parsed.content_hash
    return "superseded" if parsed.status == "current" and (is_older or is_ended) else parsed.status


def _cut(document: PolicyDocument, sections: tuple[Section, ...]) -> bool:
    """The document's passages stand as its text is cut today; whether they did not before."""
    rows = [_row(document, position, section) for position, section in enumerate(sections)]
    known = list(document.passages.order_by("position").values_list("section", "content_hash"))
    if known == [(row.section, row.content_hash) for row in rows]:
        return False
    PolicyPassage.objects.filter(document=document).delete()
    PolicyPassage.objects.bulk_create(rows, batch_size=500)
    return True


def _row(document: PolicyDocument, position: int, section: Section) -> PolicyPassage:
    digest = sha256_bytes(section.text.encode())
    name = section.path or document.title
    return PolicyPassage(document=document, section=name, position=position, text=section.text, content_hash=digest)
