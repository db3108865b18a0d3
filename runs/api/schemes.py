"""Door: how the OpenAPI document describes our two ways to sign in. Imported for its effect on the schema alone."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "runs.api.auth.BearerAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "A tenant's service token (`create_token`)."}


class StaffScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "runs.api.auth.StaffSession"
    name = "staff"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        name = settings.SESSION_COOKIE_NAME
        words = "A signed-in member of staff. What changes something also needs the header X-CSRFToken."
        return {"type": "apiKey", "in": "cookie", "name": name, "description": words}
