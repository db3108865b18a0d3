"""Door: completes the OpenAPI document: every answer of every call, its headers, who may ask, and examples.

Runs once over the finished document, so that a new call is described by the same rules. Reads no row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from approvals.states import Approved
from runs.api.examples import EXAMPLES, PROBLEM, REQUESTS, STREAM

Json = dict[str, Any]
PROBLEM_TYPE = "application/problem+json"
EVENT_STREAM = "text/event-stream"
MONEY = {
    "type": "object",
    "description": "Major units with exactly the currency's decimals, and an ISO 4217 code.",
    "properties": {
        "amount": {"type": "string", "pattern": r"^[0-9]{1,15}(\.[0-9]{1,4})?$"},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
    },
    "required": ["amount", "currency"],
    "additionalProperties": False,
}
FAULT = {
    "type": "object",
    "properties": {
        "pointer": {"type": "string", "description": "a JSON pointer to the field at fault; empty for the whole body"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
    "required": ["pointer", "code", "detail"],
    "additionalProperties": False,
}
PROBLEM_SCHEMA = {
    "type": "object",
    "description": "RFC 9457. `type` is a stable slug; `errors` stands where fields are at fault.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "trace_id": {"type": ["string", "null"]},
        "errors": {"type": "array", "items": {"$ref": "#/components/schemas/Fault"}},
    },
    "required": ["type", "title", "status", "trace_id"],
    "additionalProperties": False,
}
WORDS = {
    400: "Malformed: an unknown field or parameter, text or an id that no field takes.",
    401: "No credentials, or none that serve.",
    403: "Not allowed: a scope or permission is missing, or more is asked than is granted.",
    404: "Unknown, or another tenant's: the answer is the same.",
    409: "The state of things does not allow it any more.",
    410: "It was here and was erased, or lies in an archive.",
    413: "The body is larger than 40 MB.",
    415: "The body is not application/json.",
    422: "Well formed, and against what was said before.",
    429: "Too many requests, or too many open streams, of this token or person in this process.",
    503: "The database does not answer. Nothing was done.",
}
ALWAYS = (400, 401, 403, 429, 503)
WITH_A_BODY = (413, 415)
FURTHER: dict[str, tuple[int, ...]] = {
    "runs_create": (422,),
    "runs_message": (409, 422),
    "runs_attachment": (410,),
    "approvals_decide": (409, 422),
}
PARAMETERS: dict[str, Json] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "status": {"type": "string", "enum": [status.value for status in Approved]},
}
TOKEN_ONLY = frozenset({"runs_create", "runs_message", "runs_feedback"})
WITH_ETAG = {"runs_create": ("200", "202"), "runs_retrieve": ("200", "304"), "runs_cancel": ("202",)}
WITH_PLACE = frozenset({"runs_create", "runs_message", "runs_cancel"})


def complete(result: Json, generator: Any, request: Any, public: bool) -> Json:
    """A hook of drf-spectacular: the document with all that the views alone do not tell."""
    schemas: Json = result["components"]["schemas"]
    schemas |= {"Problem": PROBLEM_SCHEMA, "Fault": FAULT, "Money": MONEY}
    for path, call in _calls(result):
        name = call["operationId"]
        call["security"] = _who(name)
        for parameter in call.get("parameters", ()):
            parameter["schema"] = _kind(name, parameter)
        _answers(call, name, path)
        _examples(call, name)
    return result


def _calls(document: Json) -> Iterator[tuple[str, Json]]:
    for path, methods in document["paths"].items():
        for call in methods.values():
            yield path, call


def _kind(name: str, parameter: Json) -> Json:
    if parameter["in"] == "path":
        return {"type": "string", "minLength": 1}
    if name == "approvals_list" and parameter["name"] in PARAMETERS:
        return PARAMETERS[parameter["name"]]
    known: Json = parameter["schema"]
    return known


def _who(name: str) -> list[Json]:
    """A token never decides and reads no queue; staff admit nothing and speak for no customer."""
    if name.startswith("approvals"):
        return [{"staff": []}]
    return [{"token": []}] if name in TOKEN_ONLY else [{"token": []}, {"staff": []}]


def _answers(call: Json, name: str, path: str) -> None:
    found: Json = call["responses"]
    for status, answer in found.items():
        answer["description"] = answer.get("description") or call["description"].partition(".")[0]
        answer["headers"] = {**_good_headers(name, status), **answer.get("headers", {})}
    refused = [*ALWAYS, *FURTHER.get(name, ())]
    refused += [404] if "{" in path else []
    refused += WITH_A_BODY if "requestBody" in call else ()
    for code in sorted(refused):
        found[str(code)] = {
            "description": WORDS[code],
            "headers": _bad_headers(code),
            "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }


def _header(words: str, kind: str = "string") -> Json:
    return {"description": words, "schema": {"type": kind}}


def _good_headers(name: str, status: str) -> Json:
    headers = {"X-Trace-Id": _header("By which logs and records know this request.")}
    if status in WITH_ETAG.get(name, ()):
        headers["ETag"] = _header("Opaque; changes whenever the body does.")
    if name in WITH_PLACE:
        headers["Location"] = _header("The run.")
    if name == "runs_create" and status == "200":
        headers["Idempotency-Replayed"] = _header("`true`: this request was admitted before.")
    if name == "runs_create" and status == "202":
        headers["Retry-After"] = _header("Seconds until it is worth to look.", "integer")
    return headers


def _bad_headers(code: int) -> Json:
    headers = {"X-Trace-Id": _header("The problem's `trace_id`.")}
    if code in (429, 503):
        headers["Retry-After"] = _header("Seconds to wait.", "integer")
    if code == 401:
        headers["WWW-Authenticate"] = _header("`Bearer`.")
    return headers


def _examples(call: Json, name: str) -> None:
    if name in REQUESTS:
        call["requestBody"]["content"]["application/json"]["examples"] = {"example": {"value": REQUESTS[name]}}
    for answer in call["responses"].values():
        for kind, content in answer.get("content", {}).items():
            shown = content["schema"].get("$ref", "").rpartition("/")[2]
            if kind == PROBLEM_TYPE:
                content["examples"] = {"example": {"value": PROBLEM}}
            elif kind == EVENT_STREAM:
                content["examples"] = {"example": {"value": STREAM}}
            elif shown in EXAMPLES:
                content["examples"] = {"example": {"value": EXAMPLES[shown]}}
