"""A complete private site as real processes, as tests name it: the one that `manage.py chaos` runs too."""

from runs.chaos.ground import (
    APPROVER,
    COMMON,
    EMBEDDED,
    PASSWORD,
    POSTGRES_REDIS,
    SQLITE_REDIS,
    STUCK_S,
    TENANT,
    Ground,
    clean_environment,
    manage,
)
from runs.chaos.site import QUEUES, START_S, Site

__all__ = [
    "APPROVER", "COMMON", "EMBEDDED", "PASSWORD", "POSTGRES_REDIS", "QUEUES", "SQLITE_REDIS", "START_S", "STUCK_S",
    "TENANT", "Ground", "Site", "clean_environment", "manage",
]  # fmt: skip
