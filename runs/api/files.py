"""Door: hands out a file that came with a run, for clients and staff alike. Reads only; imports no zone and no store.

Bytes from a stranger: always a download, never a page of ours, whatever they say they are.
"""

from __future__ import annotations

import uuid

from django.http import HttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from agentsite.refusals import Refusal
from runs.api import auth
from runs.api.views import ApiView
from runs.attachments import OCTETS, SAFE
from runs.models import Archive, Attachment, Run

ALONE = "default-src 'none'; sandbox; frame-ancestors 'none'"


def find(run: Run, file_id: str) -> Attachment | None:
    """The file of this run under this id, its content with it."""
    try:
        known = uuid.UUID(file_id)
    except ValueError:
        return None
    return Attachment.objects.filter(run=run, id=known).first() if str(known) == file_id else None


def handed_out(row: Attachment) -> HttpResponse:
    """The file as a download. Raises Refusal 410 where its content was erased, or lies in an archive."""
    if row.content is None and Archive.objects.filter(run_id=row.run_id).exclude(conversation_key="").exists():
        raise Refusal(410, "archived", "The file is in an archive.", "It can be had again once its run was restored.")
    if row.content is None:
        raise Refusal(410, "erased", "The file was erased.", "Its name, size and hash are all that is kept.")
    kind = row.media_type if row.media_type in SAFE else OCTETS
    disposition = content_disposition_header(as_attachment=True, filename=row.name)
    response = HttpResponse(bytes(row.content), content_type=kind)
    response["Content-Disposition"] = disposition or "attachment"
    response["Content-Security-Policy"] = ALONE
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    response["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


class AttachmentView(ApiView):
    @extend_schema(
        operation_id="runs_attachment",
        responses={(200, kind): OpenApiTypes.BINARY for kind in (OCTETS, *sorted(SAFE))},
    )
    def get(self, request: Request, run_id: str, attachment_id: str) -> HttpResponse:
        """A file that came with the run, as a download."""
        row = find(self.found(auth.reader(request), run_id), attachment_id)
        if row is None:
            raise Refusal(404, "not-found", "There is no such thing.", "No file of this run has this id.")
        return handed_out(row)
