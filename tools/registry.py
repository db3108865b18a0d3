"""The registry of tools: what each is, how it may run, and which arguments it takes; imports no HTTP and no gate.

Everything else asks here and nothing is inferred from a name. A misspelt or incomplete entry refuses the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from agentsite import env, money
from agentsite.canonical import sha256
from agentsite.money import BadMoney, Money
from agentsite.tenants.profiles import Profile
from agentsite.text import visible
from tools.contracts import Credential, Danger, Effect, Json, Permission, ToolEntry
from tools.errors import InvalidArguments, UnknownTool

ID = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")
LONGEST_S = 120.0
MAX_PATH = 200
AN_ID = "an id of letters, digits and _.:@/-"
AN_AMOUNT = "a decimal amount"
A_CODE = "an ISO 4217 code"
EVIDENCE = {"type": "array", "items": {"type": "string"}, "description": "ids of the observations this rests on"}
EXPECTED_OF = {
    "missing": "present",
    "extra_forbidden": "no such field",
    "invalid_key": "no such field",
    "model_type": "an object",
    "string_unicode": "names without lone surrogates",
}


class BrokenRegistry(RuntimeError):
    """Entries that may not be served; `faults` names each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("tool registry refused: " + "; ".join(faults))
        self.faults = faults


def _expected(text: str, field: str = "") -> PydanticCustomError:
    return PydanticCustomError("expected", "{expected}", {"expected": text, "field": field})


def _id(value: object) -> object:
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise _expected(AN_ID)
    return value


def _text_up_to(limit: int) -> BeforeValidator:
    def check(value: object) -> object:
        # Twice: writing out an invisible character may leave letters before an accent that NFC then joins.
        text = visible(visible(value)) if isinstance(value, str) else ""
        if not text.strip() or len(text) > limit:
            raise _expected(f"text of 1 to {limit} characters")
        return text

    return BeforeValidator(check)


def _amount(value: object) -> object:
    if not isinstance(value, str) or not value.isascii() or not money.AMOUNT.fullmatch(value):
        raise _expected(AN_AMOUNT)
    return value


def _currency(value: object) -> object:
    try:
        money.exponent(value if isinstance(value, str) else "")
    except BadMoney:
        raise _expected(A_CODE) from None
    return value


class Arguments(BaseModel):
    """Strict and closed: a field that is not declared is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Id = Annotated[str, BeforeValidator(_id), Field(json_schema_extra={"pattern": f"^{ID.pattern}$"})]


class Amount(Arguments):
    """A decimal string in major units, never a number, and its currency."""

    amount: Annotated[str, BeforeValidator(_amount), Field(description="decimal string in major units, as 2000.00")]
    currency: Annotated[str, BeforeValidator(_currency), Field(description="ISO 4217 code, as INR")]

    @model_validator(mode="after")
    def fits_its_currency(self) -> Amount:
        try:
            minor = self.money().minor
        except BadMoney as error:
            raise _expected(str(error).removeprefix("expected "), error.field) from None
        if minor <= 0:
            raise _expected(f"{AN_AMOUNT} above 0", "amount")
        return self

    def money(self) -> Money:
        return money.from_parts(self.amount, self.currency)


class OfOrder(Arguments):
    order_id: Id


class Query(Arguments):
    query: Annotated[str, _text_up_to(500), Field(min_length=1, max_length=500)]


class RefundArguments(Arguments):
    order_id: Id
    payment_id: Id
    amount: Amount
    reason: Annotated[str, _text_up_to(200), Field(min_length=1, max_length=200)]


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
    )


_ENTRIES = (
    _commerce_read("get_order", "The order as it is now: customer, total, what it still costs, status."),
    _commerce_read("get_payments", "Every payment of an order with state, amount and time of capture."),
    _commerce_read("get_refund_status", "Every refund of an order with state, amount and reference."),
    ToolEntry(
        name="search_policy",
        summary="Passages of the company's policies on a question, with document, version and section.",
        effect=Effect.READ,
        permission=Permission.UNRESTRICTED,
        danger=Danger.SAFE,
        timeout_s=60,
        credential=Credential.NONE,
        arguments=Query,
        version=1,
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
)
TOOLS: Mapping[str, ToolEntry] = {entry.name: entry for entry in _ENTRIES}


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

    Money has exactly its currency's decimals, ids are unchanged, text is in NFC with nothing invisible left.
    Raises UnknownTool, or InvalidArguments that names the first field at fault.
    """
    try:
        checked = entry(name).arguments.model_validate(args)
    except ValidationError as error:
        raise _first_fault(error) from None
    return {field: _wire(getattr(checked, field)) for field in type(checked).model_fields}


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
    parameters = _plain(tool.arguments.model_json_schema())
    writes = tool.effect is Effect.WRITE
    if writes:
        parameters["properties"]["evidence"] = EVIDENCE
        parameters["required"] = [*parameters["required"], "evidence"]
    return {"name": tool.name, "summary": tool.summary, "parameters": parameters, "writes": writes}


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
    return sha256([{"version": entry(name).version, "schema": _schema(entry(name))} for name in sorted(set(names))])


def check_profile(profile: Profile) -> list[str]:
    """What a profile grants that is no tool, or a tool of the other class; empty where all is well."""
    lists: dict[str, tuple[Iterable[str], Effect]] = {
        "read_tools": (profile.read_tools, Effect.READ),
        "write_tools": (profile.write_tools, Effect.WRITE),
    }
    return [
        f"{field}: {name} is no {effect.value} tool"
        for field, (names, effect) in lists.items()
        for name in names
        if name not in TOOLS or TOOLS[name].effect is not effect
    ]


def check_all(tools: Mapping[str, ToolEntry] = TOOLS) -> None:
    """Raises BrokenRegistry that names every fault of every entry (M30)."""
    faults = [f"{key}: {fault}" for key, tool in tools.items() for fault in _faults(key, tool)]
    if faults:
        raise BrokenRegistry(faults)


def _faults(key: str, tool: ToolEntry) -> list[str]:
    # Of a wrong class even where the word is right: `is` comparisons would take "write" for no write.
    kinds = {"effect": Effect, "permission": Permission, "danger": Danger, "credential": Credential}
    faults = [f"{name} is misspelt" for name, kind in kinds.items() if not isinstance(getattr(tool, name), kind)]
    if tool.name != key or not tool.summary:
        faults.append("name differs from its key, or no summary")
    if type(tool.timeout_s) not in (int, float) or not 0 < tool.timeout_s <= LONGEST_S:
        faults.append(f"timeout_s is not within (0, {LONGEST_S:g}]")
    if type(tool.version) is not int or tool.version < 1:
        faults.append("version is no counting number")
    if (tool.effect is Effect.WRITE) != (tool.credential is Credential.COMMERCE_WRITE):
        faults.append("the write credential belongs to writes, and to nothing else")
    return faults + _faults_of_arguments(tool)


def _faults_of_arguments(tool: ToolEntry) -> list[str]:
    model: object = tool.arguments
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return ["arguments is no model"]
    faults = [] if model.model_config.get("extra") == "forbid" else ["arguments takes unknown fields"]
    return faults + (["arguments has a field named evidence"] if "evidence" in model.model_fields else [])


check_all()
