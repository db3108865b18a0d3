"""The registry of tools: what each is, how it may run, and which arguments it takes; imports no HTTP and no gate.

Everything else asks here and nothing is inferred from a name. A misspelt or incomplete entry refuses the start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError

from agentsite import env
from agentsite.canonical import sha256
from agentsite.tenants.profiles import Profile
from agentsite.text import visible
from tools.arguments import (
    ID,
    Amount,
    Arguments,
    Message,
    OfOrder,
    Plan,
    Query,
    Question,
    Reason,
    RefundArguments,
)
from tools.contracts import Credential, Danger, Effect, Json, Permission, ToolEntry
from tools.errors import InvalidArguments, UnknownTool

WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,14}", re.ASCII)
LONGEST_S = 120.0
MOST_RETRIES = 2
MAX_PATH = 200
EVIDENCE = {"type": "array", "items": {"type": "string"}, "description": "ids of the observations this rests on"}
EXPECTED_OF = {
    "missing": "present",
    "extra_forbidden": "no such field",
    "invalid_key": "no such field",
    "model_type": "an object",
    "string_unicode": "names without lone surrogates",
    "int_type": "a whole number",
}


class BrokenRegistry(RuntimeError):
    """Entries that may not be served; `faults` names each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("tool registry refused: " + "; ".join(faults))
        self.faults = faults


def _commerce_read(name: str, summary: str) -> ToolEntry:
    return ToolEntry(
        name=name,
        summary=summary,
        effect=Effect.READ,
        permission=Permission.UNRESTRICTED,
        danger=Danger.SAFE,
        timeout_s=60,
        credential=Credential.COMMERCE_READ,
        arguments=OfOrder,
        version=1,
        retries=MOST_RETRIES,
    )


def _search(name: str, version: int, summary: str) -> ToolEntry:
    return ToolEntry(
        name=name,
        summary=summary,
        effect=Effect.READ,
        permission=Permission.UNRESTRICTED,
        danger=Danger.SAFE,
        timeout_s=60,
        credential=Credential.NONE,
        arguments=Query,
        version=version,
        coerces=True,
    )


def _to_people(name: str, arguments: type[Arguments], summary: str) -> ToolEntry:
    return ToolEntry(
        name=name,
        summary=summary,
        effect=Effect.PEOPLE,
        permission=Permission.UNRESTRICTED,
        danger=Danger.SAFE,
        timeout_s=1,
        credential=Credential.NONE,
        arguments=arguments,
        version=1,
    )


_ENTRIES = (
    _commerce_read("get_order", "The order as it is now: customer, total, what it still costs, status."),
    _commerce_read("get_payments", "Every payment of an order with state, amount and time of capture."),
    _commerce_read("get_refund_status", "Every refund of an order with state, amount and reference."),
    _search(
        "search_policy", 2, "Passages of the company's policies on a question, with document, version and section."
    ),
    _search(
        "search_cases",
        1,
        "Earlier resolved cases like a question, as precedents: what was done once, no fact of this case.",
    ),
    ToolEntry(
        name="issue_refund",
        summary="Propose to refund an amount of one payment of an order. It is checked, and may need a person.",
        effect=Effect.WRITE,
        permission=Permission.CONDITIONAL,
        danger=Danger.DANGEROUS,
        timeout_s=LONGEST_S,
        credential=Credential.COMMERCE_WRITE,
        arguments=RefundArguments,
        version=1,
    ),
    _to_people(
        "message", Message, "Tell the customer something while you work: plain prose under the rules of a final."
    ),
    _to_people("ask", Question, "Ask the customer and wait: plain prose under the rules of a final. Stands alone."),
    _to_people("plan", Plan, "Set down, or replace, your plan of the next steps. It may stand beside reads."),
    _to_people("escalate", Reason, "Hand the request to a person of staff, who reads the reason. Stands alone."),
)
TOOLS: Mapping[str, ToolEntry] = {entry.name: entry for entry in _ENTRIES}
ROLES: Mapping[str, tuple[str, ...]] = {"refunds": tuple(TOOLS)}
"""What an agent of each kind may ever be shown; a profile grants some of it."""


def entry(name: str) -> ToolEntry:
    """The tool of exactly this name. Raises UnknownTool."""
    try:
        return TOOLS[name]
    except KeyError:
        raise UnknownTool from None


def timeout_s(name: str) -> float:
    """Seconds one call may take in all, retries included: the site's setting within the entry's ceiling."""
    tool, site = entry(name), env.read()
    return min(tool.timeout_s, site.WRITE_TIMEOUT_S if tool.effect is Effect.WRITE else site.CALL_TIMEOUT_S)


def normalise(name: str, args: object) -> Json:
    """The arguments as they are hashed, stored, shown and sent; doing it twice changes nothing.

    Money has exactly its currency's decimals, ids are unchanged, text is in NFC with nothing invisible left; what was
    left out stays out. Raises UnknownTool, or InvalidArguments that names the first field at fault.
    """
    tool = entry(name)
    try:
        checked = tool.arguments.model_validate(_coerced(tool, args) if tool.coerces else args)
    except ValidationError as error:
        raise _first_fault(error) from None
    given = [field for field in type(checked).model_fields if field in checked.model_fields_set]
    return {field: _wire(getattr(checked, field)) for field in given}


def _coerced(tool: ToolEntry, args: object) -> object:
    """Whole numbers that came as text, where only one number can be meant; all else is left to be refused (M60)."""
    if not isinstance(args, dict):
        return args
    numbers = {field for field, info in tool.arguments.model_fields.items() if info.annotation is int}
    return {
        name: int(value) if name in numbers and isinstance(value, str) and WHOLE_NUMBER.fullmatch(value) else value
        for name, value in args.items()
    }


def _wire(value: Any) -> Any:
    return value.money().wire() if isinstance(value, Amount) else value


def _first_fault(error: ValidationError) -> InvalidArguments:
    first = error.errors(include_url=False, include_input=False)[0]
    inner = first.get("ctx", {}).get("field", "")
    path = ".".join([*(str(part) for part in first["loc"]), *([inner] if inner else [])]) or "args"
    return InvalidArguments(visible(path)[:MAX_PATH], EXPECTED_OF.get(first["type"], first["msg"]))


def schemas(names: Iterable[str]) -> tuple[Json, ...]:
    """What the model is shown, in the order given: name, summary, JSON Schema of the arguments, whether it writes.

    Every write takes `evidence` too, which the parser lifts out. Raises UnknownTool.
    """
    return tuple(_schema(entry(name)) for name in names)


def _schema(tool: ToolEntry) -> Json:
    parameters: Json = json.loads(_parameters(tool.arguments))
    writes = tool.effect is Effect.WRITE
    if writes:
        parameters["properties"]["evidence"] = EVIDENCE
        parameters["required"] = [*parameters["required"], "evidence"]
    return {"name": tool.name, "summary": tool.summary, "parameters": parameters, "writes": writes}


@lru_cache(maxsize=256)
def _parameters(arguments: type[BaseModel]) -> str:
    """As JSON, so that nobody changes what the next run is shown; made once, as making it costs a tenth of a turn."""
    return json.dumps(_plain(arguments.model_json_schema()))


def _plain(schema: Json) -> Json:
    """Without references, which not every provider follows, and without pydantic's titles and our docstrings."""
    definitions = schema.get("$defs", {})

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return walk(definitions[node["$ref"].removeprefix("#/$defs/")])
        hidden = ("title", "$defs", "description") if "properties" in node else ("title",)
        kept = {key: value for key, value in node.items() if key not in hidden}
        # The keys under `properties` are names of arguments, whatever they are called.
        return {
            key: {name: walk(inner) for name, inner in value.items()} if key == "properties" else walk(value)
            for key, value in kept.items()
        }

    plain: Json = walk(schema)
    return plain


def tools_hash(names: Iterable[str]) -> str:
    """`sha256:…` over names, versions and schemas of a tool list, whatever its order. Raises UnknownTool."""
    return _hash_of(tuple(entry(name) for name in sorted(set(names))))


@lru_cache(maxsize=256)
def _hash_of(tools: tuple[ToolEntry, ...]) -> str:
    """Asked for at each turn and at each release, of entries that no process changes."""
    return sha256([{"version": tool.version, "schema": _schema(tool)} for tool in tools])


def check_profile(profile: Profile) -> list[str]:
    """What a profile grants that is no tool, or a tool of another class; empty where all is well."""
    lists: dict[str, tuple[Iterable[str], Effect]] = {
        "read_tools": (profile.read_tools, Effect.READ),
        "write_tools": (profile.write_tools, Effect.WRITE),
        "people_tools": (profile.people_tools, Effect.PEOPLE),
    }
    faults = [
        f"{field}: {name} is no {effect.value} tool"
        for field, (names, effect) in lists.items()
        for name in names
        if name not in TOOLS or TOOLS[name].effect is not effect
    ]
    faults += [f"blocked_tools: {fault}" for fault in check_blocked(profile.blocked_tools)]
    faults += [] if profile.agent in ROLES else [f"agent: {profile.agent} is no agent, so it would be shown no tool"]
    return faults + list(_faults_of_secrets(profile))


def _faults_of_secrets(profile: Profile) -> Iterable[str]:
    """Placeholders that would stand for a credential of the site or of this profile: none is ever resolved."""
    commerce = profile.commerce
    own = {commerce.read_token_env, commerce.write_token_env} if commerce is not None else set()
    for name, variable in profile.secrets.items():
        if variable in own or variable in env.Environment.model_fields:
            yield f"secrets.{name}: {variable} is a variable of the site or of commerce"


def check_blocked(names: Iterable[str]) -> list[str]:
    """Names of a list of blocked tools that are no tool: a misspelt one would block nothing."""
    return [f"{visible(name)[:MAX_PATH]} is no tool" for name in names if name not in TOOLS]


def check_all(tools: Mapping[str, ToolEntry] = TOOLS) -> None:
    """Raises BrokenRegistry that names every fault of every entry (M30)."""
    faults = [f"{key}: {fault}" for key, tool in tools.items() for fault in _faults(key, tool)]
    if faults:
        raise BrokenRegistry(faults)


def _faults(key: str, tool: ToolEntry) -> list[str]:
    # Of a wrong class even where the word is right: `is` comparisons would take "write" for no write.
    kinds = {"effect": Effect, "permission": Permission, "danger": Danger, "credential": Credential, "coerces": bool}
    faults = [f"{name} is misspelt" for name, kind in kinds.items() if not isinstance(getattr(tool, name), kind)]
    if tool.name != key or not tool.summary:
        faults.append("name differs from its key, or no summary")
    if type(tool.timeout_s) not in (int, float) or not 0 < tool.timeout_s <= LONGEST_S:
        faults.append(f"timeout_s is not within (0, {LONGEST_S:g}]")
    if type(tool.version) is not int or tool.version < 1:
        faults.append("version is no counting number")
    if (tool.effect is Effect.WRITE) != (tool.credential is Credential.COMMERCE_WRITE):
        faults.append("the write credential belongs to writes, and to nothing else")
    if tool.effect is Effect.PEOPLE and tool.credential is not Credential.NONE:
        faults.append("a people tool holds no credential")
    if tool.permission is Permission.UNRESTRICTED and tool.danger is not Danger.SAFE:
        faults.append("what runs with no check of its arguments must be safe")
    return faults + _faults_of_running(tool) + _faults_of_arguments(tool)


def _faults_of_running(tool: ToolEntry) -> list[str]:
    faults = []
    if type(tool.retries) is not int or not 0 <= tool.retries <= MOST_RETRIES:
        faults.append(f"retries is not within 0 to {MOST_RETRIES}")
    elif tool.retries and tool.effect is not Effect.READ:
        faults.append("only a read is repeated")
    if tool.cancel is not None and (not callable(tool.cancel) or tool.effect is not Effect.READ):
        faults.append("cancel is no hook of a read")
    return faults


def _faults_of_arguments(tool: ToolEntry) -> list[str]:
    model: object = tool.arguments
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return ["arguments is no model"]
    faults = [] if model.model_config.get("extra") == "forbid" else ["arguments takes unknown fields"]
    faults += ["arguments has a field named evidence"] if "evidence" in model.model_fields else []
    takes = {name for name, info in model.model_fields.items() if info.annotation is str}
    if tool.secret_args and (tool.effect is not Effect.WRITE or not set(tool.secret_args) <= takes):
        faults.append("secret_args names no text argument of a write")
    return faults + (_faults_of_coercing(tool, model) if tool.coerces is True else [])


def _faults_of_coercing(tool: ToolEntry, model: type[BaseModel]) -> list[str]:
    """Nothing that moves money or names a thing is ever guessed from another form than its own."""
    properties = _plain(model.model_json_schema())["properties"].values()
    holds = any(p.get("pattern") == f"^{ID.pattern}$" or p.get("type") == "object" for p in properties)
    faults = ["a write coerces nothing"] if tool.effect is Effect.WRITE else []
    faults += ["what takes an id or money coerces nothing"] if holds else []
    taken = any(info.annotation is int for info in model.model_fields.values())
    return faults + ([] if taken else ["coerces, and takes no whole number"])


check_all()
