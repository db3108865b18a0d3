"""The API fuzzed by its own description (schemathesis), in this process: any answer it does not declare is a failure.

Values that fit the description and values that do not, with ids of things that exist in every second call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks
from schemathesis.specs.openapi.schemas import OpenApiSchema

SEED = 8472
CHECKS = [
    not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_headers_conformance, checks.response_schema_conformance,
]  # fmt: skip
PHASES = (Phase.explicit, Phase.generate)


class Fuzz:
    """Calls every operation as one caller; `answered` counts what came back, by operation."""

    def __init__(
        self, ids: Mapping[str, str], headers: Mapping[str, str], cookies: Mapping[str, str] | None = None
    ) -> None:
        self.schema: OpenApiSchema = openapi.from_wsgi("/api/schema/?format=json", get_wsgi_application())
        self.ids, self.cookies = dict(ids), dict(cookies or {})
        self.headers = {**headers, "Accept": "application/json"}
        self.answered: dict[str, Counter[int]] = {}

    def operations(self) -> Iterator[Any]:
        for found in self.schema.get_all_operations():
            assert isinstance(found, Ok), found
            yield found.ok()

    def every_operation(self, examples: int) -> None:
        """So many calls of each kind an operation. Raises the first answer that is not declared."""
        for operation in self.operations():
            self.answered[operation.label] = Counter()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                self._calls(operation, mode, examples)

    def _calls(self, operation: Any, mode: GenerationMode, examples: int) -> None:
        cases, turns = operation.as_strategy(generation_mode=mode), count()

        @seed(SEED)
        @settings(
            max_examples=examples, phases=PHASES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=cases)
        def call(case: Any) -> None:
            if next(turns) % 2 == 0:
                case.path_parameters = {n: self.ids.get(n, v) for n, v in case.path_parameters.items()}
            answer = case.call(headers=self.headers, cookies=self.cookies)
            self.answered[operation.label][answer.status_code] += 1
            case.validate_response(answer, checks=CHECKS)

        call()
