"""Door: the queue and the review page, where a person decides. Reads runs; writes only through keepers of approvals.

No form of raw fields, no bulk approval, no approval by GET: one POST with the hash of what was looked at.
"""

from __future__ import annotations

from django.contrib import admin

from approvals.admin import notices as notices
from approvals.admin.bulk import Bulk
from approvals.admin.exports import Exports
from approvals.admin.holding import Holding
from approvals.admin.lists import Queue
from approvals.admin.reviewing import Review
from approvals.models import Approval


@admin.register(Approval)
class ApprovalAdmin(Exports, Bulk, Holding, Queue, Review):
    """The list, what may be done to some of it at once, and each approval's own page."""
