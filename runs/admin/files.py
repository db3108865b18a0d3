"""Door: hands a file that came with a run to staff who may see the run, as a download. Reads only."""

from __future__ import annotations

import uuid

from django.http import Http404, HttpRequest, HttpResponse

from agentsite.refusals import Refusal
from agentsite.tenants.console import ReadOnly
from runs.api import files


def download(admin: ReadOnly, request: HttpRequest, object_id: str, file_id: uuid.UUID) -> HttpResponse:
    """The file of a run that this user may view. Raises Http404 where there is none, or its content was erased."""
    row = files.find(admin.seen_or_404(request, object_id), str(file_id))
    if row is None:
        raise Http404("there is no such page")
    try:
        return files.handed_out(row)
    except Refusal as gone:
        raise Http404(gone.title) from None
