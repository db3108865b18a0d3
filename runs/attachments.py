"""Files that come with a request or a message: read strictly, known everywhere by name, size and hash.

A paper: no Django, no clock. Their content is kept and handed out, and read by nobody: no model is ever shown it (M96).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from agentsite.tenants.profiles import Paper
from agentsite.text import INVISIBLE, has_forbidden
from tools.contracts import Json

MAX_FILES = 5
MAX_RUN_FILES = 50
"""Of one run, over all its messages: each of its answers names them all, and nobody may fill the database."""
MAX_BYTES = 5 * 1024 * 1024
MAX_BASE64 = (MAX_BYTES + 2) // 3 * 4
MAX_GIVEN_NAME, MAX_NAME, MAX_ENDING = 255, 120, 12
SOURCE = "attachment"
"""The source of the observation that tells a run of the files its request came with."""
OCTETS = "application/octet-stream"
SAFE = frozenset({"application/pdf", "image/gif", "image/jpeg", "image/png", "image/webp", "text/plain"})
"""Media types that are handed out as what they say they are; anything else is a row of bytes."""

_WORD = "[a-z0-9][a-z0-9!#$&^_.+-]{0,62}"
_MEDIA_TYPE = re.compile(f"{_WORD}/{_WORD}")
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class NewAttachment:
    """One file as it is to be kept; `sha256` is the hex digest of its content."""

    name: str
    media_type: str
    sha256: str
    content: bytes

    @property
    def reference(self) -> Json:
        """What anybody but its reader gets to see of it."""
        return {"name": self.name, "media_type": self.media_type, "size": len(self.content), "sha256": self.sha256}


def clean_name(given: str) -> str:
    """A file's name without path, control and invisible characters, MAX_NAME long at most; "" where none is left."""
    last = unicodedata.normalize("NFC", given).replace("\\", "/").rpartition("/")[2]
    seen = "".join(" " if c.isspace() else c for c in last if c.isspace() or unicodedata.category(c) not in INVISIBLE)
    name = " ".join(seen.split()).strip(" .")
    stem, dot, ending = name.rpartition(".")
    if len(name) <= MAX_NAME:
        return name
    kept = f"{dot}{ending}" if dot and len(ending) <= MAX_ENDING else ""
    return f"{(stem if kept else name)[: MAX_NAME - len(kept) - 1].strip()}…{kept}"


def uploaded(name: str, media_type: str, content: bytes) -> NewAttachment:
    """A file that somebody chose in a browser. What the browser says of it counts only where it can be true."""
    said = media_type.partition(";")[0].strip().lower()
    return NewAttachment(
        name=clean_name(name) or "file", media_type=said if _MEDIA_TYPE.fullmatch(said) else OCTETS,
        sha256=hashlib.sha256(content).hexdigest(), content=content,
    )  # fmt: skip


def _name(given: str) -> str:
    if has_forbidden(given) or not (name := clean_name(given)):
        raise ValueError("must name a file")
    return name


def _media_type(given: str) -> str:
    if not _MEDIA_TYPE.fullmatch(given.lower()):
        raise ValueError("must be a media type without parameters, such as image/png")
    return given.lower()


def _content(given: str) -> str:
    try:
        raw = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raw = None
    # Two spellings of one content would be two bodies of one request.
    if raw is None or base64.b64encode(raw).decode() != given:
        raise ValueError("must be padded standard base64 without line breaks")
    if not raw:
        raise ValueError("an empty file is none")
    if len(raw) > MAX_BYTES:
        raise ValueError("at most 5 MB a file")
    return given


class AttachmentBody(Paper):
    """One file in a body of the API."""

    name: Annotated[str, Field(strict=True, min_length=1, max_length=MAX_GIVEN_NAME), AfterValidator(_name)]
    media_type: Annotated[str, Field(strict=True, max_length=127), AfterValidator(_media_type)]
    content_base64: Annotated[str, Field(strict=True, max_length=MAX_BASE64), AfterValidator(_content)]
    sha256: Annotated[str, Field(strict=True, max_length=64)]

    @field_validator("sha256")
    @classmethod
    def of_the_content(cls, given: str, info: ValidationInfo) -> str:
        if not _SHA256.fullmatch(given.lower()):
            raise ValueError("must be a SHA-256 in hex digits")
        content = info.data.get("content_base64")
        if content is not None and hashlib.sha256(base64.b64decode(content)).hexdigest() != given.lower():
            raise ValueError("is not the SHA-256 of the content")
        return given.lower()

    def taken(self) -> NewAttachment:
        return NewAttachment(
            name=self.name, media_type=self.media_type, sha256=self.sha256,
            content=base64.b64decode(self.content_base64),
        )  # fmt: skip


Attachments = Annotated[list[AttachmentBody], Field(max_length=MAX_FILES)]


def taken(bodies: Sequence[AttachmentBody] | None) -> tuple[NewAttachment, ...]:
    return tuple(body.taken() for body in bodies or ())


def without_content(raw_body: Json) -> Json:
    """A request's body with its files by reference: as much says which request it is, since each hash was checked."""
    files = raw_body.get("attachments")
    if not isinstance(files, list):
        return raw_body
    short = [{k: v for k, v in f.items() if k != "content_base64"} if isinstance(f, dict) else f for f in files]
    return {**raw_body, "attachments": short}
