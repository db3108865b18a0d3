"""Says odd turns in each provider's bytes: every value is JSON text of the test's own, so that nothing is put right."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI, SAID

Raw = str
"""JSON text, valid or not."""
Pairs = tuple[tuple[str, Raw | None], ...]
EVIDENCE = '["obs_99"]'
"""An observation that no run has."""


def obj(*pairs: tuple[str, Raw | None]) -> Raw:
    """An object of these fields in this order, doubles and all; None leaves a field out."""
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in pairs if value is not None) + "}"


def refund(**fields: Raw) -> Raw:
    """The arguments of the refund that is owed, with these changed or added; `amount` is the amount alone."""
    money = obj(("amount", fields.pop("amount", '"2000.00"')), ("currency", fields.pop("currency", '"INR"')))
    usual = {"order_id": '"8472"', "payment_id": '"pay_9002"', "money": money, "reason": '"duplicate_capture"'}
    made = {**usual, **fields}
    made["amount"] = made.pop("money")
    return obj(*made.items())


def as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call. `args` is the JSON text of its arguments, without evidence; `changed` what becomes of the whole text;
    `form` how it travels: `own` is the dialect's, `object`, `string` and `double` are what others do."""

    name: Raw | None = '"issue_refund"'
    args: Raw = field(default_factory=refund)
    evidence: Raw | None = EVIDENCE
    changed: Callable[[str], str] = as_it_is
    form: str = "own"
    id: Raw | None = '"call_a"'
    kind: Raw | None = "own"
    index: Raw | None = "own"
    more: Pairs = ()

    def text(self, provider: str) -> str:
        """The arguments as the dialect has them: evidence is among them in a native mode, beside them in the other."""
        beside = provider == ANTHROPIC_XML or self.evidence is None or not self.args.endswith("}")
        known = self.args if beside else f'{self.args[:-1]}, "evidence": {self.evidence}}}'
        return self.changed(known)

    def fragment(self, provider: str) -> Raw:
        """What stands in the place of the arguments."""
        text = self.text(provider)
        strings = {"own": provider == OPENAI, "object": False, "string": True, "double": True}[self.form]
        once = json.dumps(text) if strings else text
        return json.dumps(once) if self.form == "double" else once


READ = Call(name='"get_order"', args='{"order_id": "8472"}', evidence=None, id='"call_r"')
PAYMENTS = Call(name='"get_payments"', args='{"order_id": "8472"}', evidence=None, id='"call_p"')


@dataclass(frozen=True, kw_only=True)
class Odd:
    """One turn. `says` is a draft (wrapped where the dialect wraps it), `text` is text as it is. `finish` is our word,
    or JSON text in quotes, or null. `more` is added to the message (the delta, the event), `top` to the answer."""

    calls: tuple[Call, ...] = ()
    says: Raw | None = None
    text: Raw | None = None
    finish: Raw = ""
    model: Raw | None = '"m-2026"'
    count: Raw | None = "7"
    more: Pairs = ()
    top: Pairs = ()
    blocks: tuple[Raw, ...] = ()

    def ended(self, provider: str) -> Raw:
        word = self.finish or ("tool_calls" if self.calls and provider != ANTHROPIC_XML else "stop")
        known = SAID[OPENAI if provider == OPENAI else ANTHROPIC]
        return json.dumps(known[word]) if word in known else word

    def spoken(self, provider: str) -> Raw | None:
        """The text beside the calls, or that holds them in a mode without tool fields."""
        if provider != ANTHROPIC_XML:
            return self.text if self.says is None else self.says
        if self.calls:
            said = [_in_text(call) for call in self.calls]
            return json.dumps(said[0] if len(said) == 1 else f"[{', '.join(said)}]")
        return self.text if self.says is None else json.dumps(obj(("final", self.says), ("evidence", "[]")))

    def usage(self) -> Raw | None:
        if self.count is None:
            return None
        names = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "cache_read_input_tokens")
        cached = obj(("cached_tokens", self.count))
        return obj(*((name, self.count) for name in names), ("prompt_tokens_details", cached))


def _in_text(call: Call) -> Raw:
    return obj(("tool", call.name), ("args", call.fragment(ANTHROPIC_XML)), ("evidence", call.evidence))


def whole(provider: str, odd: Odd) -> bytes:
    """The turn as one JSON answer."""
    return sealed(_completion(odd) if provider == OPENAI else _message(provider, odd))


def events(provider: str, odd: Odd) -> list[str]:
    """The turn as events of a stream, without the blank lines that end them."""
    return _chunks(odd) if provider == OPENAI else _message_events(provider, odd)


def stream(lines: Sequence[str], end: str = "\n") -> bytes:
    return sealed("".join(f"{line}\n\n" for line in lines).replace("\n", end))


def sealed(text: str) -> bytes:
    """UTF-8, lone surrogates as the bytes that a careless server sends."""
    return text.encode("utf-8", "surrogatepass")


def pieces(fragment: Raw, size: int = 9) -> list[Raw]:
    """A JSON string in pieces, each a JSON string; anything else whole."""
    try:
        text = json.loads(fragment)
    except ValueError:
        return [fragment]
    if not isinstance(text, str):
        return [fragment]
    size = max(size, len(text) // 50)
    return [json.dumps(text[i : i + size]) for i in range(0, len(text), size)] or ['""']


def data(*pairs: tuple[str, Raw | None], name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {obj(*pairs)}"


# --- OpenAI ----------------------------------------------------------------------------------------------------------


def _completion(odd: Odd) -> Raw:
    calls = [_tool_call(call, None) for call in odd.calls]
    message = obj(
        ("role", '"assistant"'), ("content", odd.spoken(OPENAI) or "null"),
        ("tool_calls", f"[{', '.join(calls)}]" if calls else None), *odd.more,
    )  # fmt: skip
    choice = obj(("index", "0"), ("message", message), ("finish_reason", odd.ended(OPENAI)))
    return obj(
        ("id", '"x1"'), ("model", odd.model), ("choices", f"[{choice}]"), ("usage", odd.usage()), *odd.top
    )  # fmt: skip


def _tool_call(call: Call, index: Raw | None, arguments: Raw | None = None) -> Raw:
    given = call.fragment(OPENAI) if arguments is None else arguments
    function = obj(("name", call.name), ("arguments", given))
    kind = '"function"' if call.kind == "own" else call.kind
    return obj(("index", index), ("id", call.id), ("type", kind), ("function", function), *call.more)


def _chunks(odd: Odd) -> list[str]:
    def chunk(*delta: tuple[str, Raw | None], finish: Raw | None = None) -> str:
        choice = obj(("index", "0"), ("delta", obj(*delta)), ("finish_reason", finish))
        return data(("model", odd.model), ("choices", f"[{choice}]"), *odd.top)

    text = odd.spoken(OPENAI)
    lines = [chunk(("role", '"assistant"'), *odd.more)]
    lines += [chunk(("content", piece)) for piece in (pieces(text) if text else ["null"])]
    for number, call in enumerate(odd.calls):
        index = str(number) if call.index == "own" else call.index
        fragment = call.fragment(OPENAI)
        first, *further = pieces(fragment) if call.form == "own" else [fragment]
        lines.append(chunk(("tool_calls", f"[{_tool_call(call, index, first)}]")))
        for piece in further:
            part = obj(("index", index), ("function", obj(("arguments", piece))))
            lines.append(chunk(("tool_calls", f"[{part}]")))
    lines.append(chunk(finish=odd.ended(OPENAI)))
    if odd.count is not None:
        lines.append(data(("model", odd.model), ("choices", "[]"), ("usage", odd.usage())))
    return [*lines, "data: [DONE]"]


# --- Anthropic -------------------------------------------------------------------------------------------------------


def _blocks(provider: str, odd: Odd) -> list[tuple[Raw | None, Raw, list[Raw]]]:
    """(index, the block with its content, the deltas of its content in a stream), block by block."""
    made: list[tuple[Raw | None, Raw, list[Raw]]] = [("own", block, []) for block in odd.blocks]
    text = odd.spoken(provider)
    if text is not None:
        deltas = [obj(("type", '"text_delta"'), ("text", piece)) for piece in pieces(text)]
        made.append(("own", obj(("type", '"text"'), ("text", text)), deltas))
    for call in odd.calls if provider == ANTHROPIC else ():
        made.append((call.index, _tool_use(call, call.fragment(provider)), _growing(call, provider)))
    return made


def _tool_use(call: Call, given: Raw) -> Raw:
    kind = '"tool_use"' if call.kind == "own" else call.kind
    return obj(("type", kind), ("id", call.id), ("name", call.name), ("input", given), *call.more)


def _growing(call: Call, provider: str) -> list[Raw]:
    parts = pieces(json.dumps(call.fragment(provider)))
    return [obj(("type", '"input_json_delta"'), ("partial_json", part)) for part in parts]


def _message(provider: str, odd: Odd) -> Raw:
    content = ", ".join(block for _, block, _ in _blocks(provider, odd))
    return obj(
        ("id", '"x1"'), ("type", '"message"'), ("role", '"assistant"'), ("model", odd.model),
        ("content", f"[{content}]"), ("stop_reason", odd.ended(provider)), *odd.more, ("usage", odd.usage()), *odd.top,
    )  # fmt: skip


def event(kind: str, *pairs: tuple[str, Raw | None]) -> str:
    return data(("type", json.dumps(kind)), *pairs, name=kind)


def _message_events(provider: str, odd: Odd) -> list[str]:
    begun = obj(("type", '"message"'), ("model", odd.model), ("content", "[]"), ("usage", odd.usage()), *odd.more)
    lines = [event("message_start", ("message", begun), *odd.top)]
    for number, (given, block, deltas) in enumerate(_blocks(provider, odd)):
        lines += _one_block(str(number) if given == "own" else given, block, deltas)
    end = obj(("stop_reason", odd.ended(provider)))
    lines.append(event("message_delta", ("delta", end), ("usage", odd.usage())))
    return [*lines, event("message_stop")]


def _one_block(index: Raw | None, block: Raw, deltas: list[Raw]) -> list[str]:
    begun = block if not deltas else _begun(block, deltas)
    lines = [event("content_block_start", ("index", index), ("content_block", begun))]
    lines += [event("content_block_delta", ("index", index), ("delta", delta)) for delta in deltas]
    return [*lines, event("content_block_stop", ("index", index))]


def _begun(block: Raw, deltas: list[Raw]) -> Raw:
    """The block as it begins: without what its deltas bring."""
    if "text_delta" in deltas[0]:
        return '{"type": "text", "text": ""}'
    return block.partition(', "input": ')[0] + ', "input": {}}'
