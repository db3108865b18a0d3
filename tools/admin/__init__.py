"""Door: policies, their freshness incidents and the circuit breakers, for staff. Imports no runs and no approvals."""

from __future__ import annotations

from tools.admin import breakers, documents, incidents

__all__ = ["breakers", "documents", "incidents"]
