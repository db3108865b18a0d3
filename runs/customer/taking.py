"""Door: reads what a customer's form sent, as strictly as the API, with words for people. Imports no store, no zone."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.utils.datastructures import MultiValueDict

from agentsite.refusals import Refusal
from agentsite.text import blank
from runs.api import bodies
from runs.attachments import MAX_BYTES, MAX_FILES, NewAttachment, uploaded

MAX_BODY = MAX_FILES * MAX_BYTES + 256 * 1024
AGAIN = "Please choose your files again."


@dataclass(frozen=True, kw_only=True)
class Form:
    """What came: fields as text with LF for line breaks, and files read whole; `fault` is what is wrong, in words."""

    fields: dict[str, str] = field(default_factory=dict)
    files: tuple[NewAttachment, ...] = ()
    fault: str = ""
    status: int = 400

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")


def form(request: HttpRequest) -> Form:
    """The form that was sent; where it cannot be read, or its files cannot be taken, `fault` says so."""
    if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BODY + 1024 * 1024:
        return Form(fault=f"That is too large: at most {MAX_FILES} files of 5 MB each. Please try again.", status=413)
    try:
        sent, chosen = request.POST, request.FILES
    except (MultiPartParserError, SuspiciousOperation, LookupError, ValueError):  # the last two: a charset of no text
        return Form(fault="We could not read what was sent. Please try again.")
    fields = {name: str(sent[name]).replace("\r\n", "\n") for name in sent}
    return _with_files(fields, chosen)


def _with_files(fields: dict[str, str], chosen: MultiValueDict[str, UploadedFile[bytes]]) -> Form:
    files = chosen.getlist("files")
    if len(files) > MAX_FILES:
        return Form(fields=fields, fault=f"At most {MAX_FILES} files at once. {AGAIN}")
    for one in files:
        if not one.size or one.size > MAX_BYTES:
            why = "A file is empty." if not one.size else "A file is larger than 5 MB."
            return Form(fields=fields, fault=f"{why} {AGAIN}")
    read = tuple(uploaded(str(one.name or ""), str(one.content_type or ""), one.read()) for one in files)
    return Form(fields=fields, files=read)


def message_fault(text: str) -> str:
    """What keeps a text from being a message, in words for its writer; "" where nothing does."""
    if blank(text):
        return "Please write something first."
    try:
        bodies.parse(bodies.MessageBody, {"text": text})
    except Refusal as refused:
        if any(fault["code"] == "forbidden_text" for fault in refused.errors or ()):
            return "Your text holds characters that we cannot take."
        return "Your text is too long: at most 16 KB, which is about eight pages."
    return ""


def feedback(fields: Form) -> bodies.FeedbackBody | str:
    """The thumb and the word, or what is wrong with them."""
    if fields["rating"] not in ("up", "down"):
        return "Please choose one of the two."
    try:
        return bodies.parse(bodies.FeedbackBody, {"rating": fields["rating"], "text": fields["text"]})
    except Refusal:
        return "Your text cannot be taken: at most 4,000 characters of plain text."
