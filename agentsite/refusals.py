"""A refusal as a value to raise: what a door answers instead of doing it. Imports nothing of ours.

`agentsite.problems` renders it as RFC 9457 problem+json; the console shows `detail`.
"""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """A request that is refused for good as it stands.

    `status` is the HTTP status, `slug` the stable type, `errors` a list of `{"pointer", "code", "detail"}` where
    fields are at fault. None of them may hold a secret: all of it goes to the client.
    """

    def __init__(
        self, status: int, slug: str, title: str, detail: str = "", errors: list[dict[str, Any]] | None = None
    ) -> None:
        super().__init__(f"{status} {slug}: {title}")
        self.status = status
        self.slug = slug
        self.title = title
        self.detail = detail
        self.errors = errors
