"""A model field for JSON kept as the exact canonical text it was hashed over, on every database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.db import models

from agentsite.canonical import canonical_text

if TYPE_CHECKING:
    Text = models.TextField[Any, Any]
else:
    Text = models.TextField


class CanonicalJSON(Text):
    """JSON stored as RFC 8785 text: jsonb would reorder keys and rewrite numbers under a hash."""

    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return None if value is None else json.loads(value)

    def to_python(self, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else canonical_text(value)

    def value_to_string(self, obj: models.Model) -> str:
        return self.get_prep_value(self.value_from_object(obj)) or ""
