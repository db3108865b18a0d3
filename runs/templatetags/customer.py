"""Door: the tag by which a run's page shows staff the files that its customer's side sent (M96)."""

from __future__ import annotations

from typing import Any

from django import template

from runs.models import Archive, Attachment, Run

register = template.Library()
MAX_FILES = 100


@register.inclusion_tag("admin/runs/run/files.html")
def customer_files(run: Run) -> dict[str, Any]:
    """The run's files by reference, each with the id of the message it came with; at most MAX_FILES."""
    found = Attachment.objects.filter(run=run).defer("content").order_by("input_seq", "position")[:MAX_FILES]
    messages = dict(run.inputs.filter(kind="message").values_list("seq", "message_id"))
    erased = set(Attachment.objects.filter(run=run, content=None).values_list("id", flat=True))
    archived = run.conversation_erased_at is None and Archive.objects.filter(run=run).exists()
    files = [(file, messages.get(file.input_seq or -1)) for file in found]
    return {"run": run, "files": files, "erased": erased, "archived": archived}
