"""The row that says where the bulky part of an ended run lies, and holds the keys that open it. Columns, no methods."""

from __future__ import annotations

from django.db import models

from runs.models.rows import Run


class Archive(models.Model):
    """An archived run: its texts lie in `file`, one line of which has this `sha256`; gone once they are back.

    `folder` is where it was written; a file may be moved, and its place named at the restore. Without its key a class
    of data in that line can be read by nobody: an erasure takes it. `mac` covers run, file, hash, `last_seq` and `at`.
    """

    run = models.OneToOneField(Run, on_delete=models.PROTECT, primary_key=True, related_name="archive")
    file = models.CharField(max_length=80)
    folder = models.CharField(max_length=1000)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveIntegerField()
    last_seq = models.PositiveIntegerField()
    at = models.DateTimeField()
    conversation_key = models.CharField(max_length=64, blank=True, default="")
    evidence_key = models.CharField(max_length=64, blank=True, default="")
    key_id = models.CharField(max_length=32)
    mac = models.CharField(max_length=64)

    class Meta:
        indexes = [models.Index(fields=["file"], name="archive_by_file")]
        default_permissions = ()
