"""The table's first half: arguments, calls, and whole turns that a model gets wrong."""

from __future__ import annotations

import json

from tests.models.kinds import MODES, Becomes, Kind, arguments, said
from tests.models.odd import PAYMENTS, READ, Call, Odd, obj, refund
from tests.models.speaking import ANTHROPIC, ANTHROPIC_XML, OPENAI

WRITE = "issue_refund"
NOT_JSON, BAD_JSON, OUTPUT = "later: not_json", "told: invalid_json", "told: invalid_output"
INVALID = "told: invalid_answer"
# An input that is no JSON breaks Anthropic's whole answer; in a stream and as text it breaks the call alone.
BROKEN = {"anthropic json": NOT_JSON, "else": BAD_JSON}
AMOUNT, OF_AMOUNT = "told: invalid_arguments amount", "told: invalid_arguments amount.amount"
FORBIDDEN = "told: forbidden_characters"
LEVELS = {count: '{"a": ' * count + "1" + "}" * count for count in (20, 50)}

ARGUMENTS = [
    arguments("in the dialect's own form", WRITE),
    arguments("as an object", WRITE, form="object"),
    arguments("as a string", {OPENAI: WRITE, "anthropic json": INVALID, "else": OUTPUT}, form="string"),
    arguments("double-encoded", {"anthropic json": INVALID, "else": OUTPUT}, form="double"),
    arguments("two objects joined", BROKEN, changed=lambda text: text + text),
    arguments("two objects joined by a line end", BROKEN, changed=lambda text: f"{text}\n{text}"),
    arguments("cut by length though parseable", "told: cut_by_length", args=refund(amount='"20.00"'), finish="length"),
    arguments("cut by length, not parseable", {"anthropic json": NOT_JSON, "else": "told: cut_by_length"},
              changed=lambda text: text[:-40], finish="length"),
    arguments("cut, and said to be whole", BROKEN, changed=lambda text: text[:-9]),
    arguments("empty", {**BROKEN, "anthropic sse": "told: invalid_arguments order_id"}, changed=lambda text: ""),
    arguments("blank", BROKEN, changed=lambda text: "  "),
    arguments("an empty object", "told: invalid_arguments order_id", args="{}", evidence=None),
    arguments("null", OUTPUT, changed=lambda text: "null"),
    arguments("true", OUTPUT, changed=lambda text: "true"),
    arguments("a number", OUTPUT, changed=lambda text: "3"),
    arguments("a list", OUTPUT, changed=lambda text: f"[{text}]"),
    arguments("in a code fence", BROKEN, changed=lambda text: f"```json\n{text}\n```"),
    arguments("with a comment", BROKEN, changed=lambda text: f"{text[:-1]} /* owed */}}"),
    arguments("with a comma too many", BROKEN, changed=lambda text: f"{text[:-1]},}}"),
    arguments("in single quotes", BROKEN, changed=lambda text: text.replace('"', "'")),
    arguments("with Python's words", BROKEN, args=refund(reason="None")),
    arguments("with a field twice", BAD_JSON, args=f'{{"order_id": "8471", {refund()[1:]}'),
    arguments("with an amount twice", BAD_JSON, args=refund(currency='"INR", "amount": "4000.00"')),
    arguments("with a field twice by an escape", BAD_JSON, args=f'{{"order\\u005fid": "8471", {refund()[1:]}'),
    arguments("with a field that is not offered", "told: invalid_arguments approved", args=refund(approved="true")),
    arguments("with a field of an object's making", "told: invalid_arguments __proto__", args=refund(__proto__="{}")),
    arguments("with 20 levels in a field that is not offered", "told: invalid_arguments note",
              args=refund(note=LEVELS[20])),
    arguments("with 50 levels in a field that is not offered", BAD_JSON, args=refund(note=LEVELS[50])),
    arguments("with evidence that is no list", OUTPUT, evidence='"obs_1"'),
    arguments("with evidence of numbers", OUTPUT, evidence="[1]"),
    arguments("100,000 opening brackets", {"anthropic json": NOT_JSON, "else": "told: too_long"},
              changed=lambda text: "[" * 100_000),
    arguments("5,000 brackets that close", BROKEN, changed=lambda text: "[" * 5000 + "]" * 5000),
    arguments("100,000 brackets that close", {"anthropic json": NOT_JSON, "else": "told: too_long"},
              changed=lambda text: "[" * 100_000 + "]" * 100_000),
    arguments("over 64 KB", "told: too_long", args=refund(reason=json.dumps("x" * 70_000))),
]  # fmt: skip

AMOUNTS = [
    *[arguments(f"amount {name}", BAD_JSON, args=refund(amount=raw)) for name, raw in {
        "NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity", "1e400": "1e400", "of 5,000 digits": "9" * 5000,
    }.items()],
    *[arguments(f"amount {name}", OF_AMOUNT, args=refund(amount=raw)) for name, raw in {
        "true": "true", "null": "null", "a float": "2000.0", "an integer": "2000", "1e3": "1e3",
        "with grouping": '"2,000.00"', "with a sign": '"+2000.00"', "negative": '"-2000.00"',
        "with a space": '" 2000.00"',
        "with an exponent": '"2e3"', "with three decimals": '"2000.001"', "in words": '"two thousand"',
        "in Arabic-Indic digits": '"٢٠٠٠.٠٠"', "in full-width digits": '"２０００.00"',
        "in Devanagari digits": '"२०००.००"',
        "with an Arabic separator": '"2000٫00"', "with its currency": '"INR 2000.00"', "'NaN'": '"NaN"',
        "an underscore": '"2_000.00"', "hexadecimal": '"0x7d0"', "with a line end": '"2000.00\\n"', "empty": '""',
    }.items()],
    arguments("amount past 2^53", OUTPUT, args=refund(amount="9007199254740993")),
    arguments("money as a number", AMOUNT, args=refund(money="2000")),
    arguments("money as a float", AMOUNT, args=refund(money="2000.0")),
    arguments("money as a boolean", AMOUNT, args=refund(money="true")),
    arguments("money as text", AMOUNT, args=refund(money='"2000.00"')),
    arguments("currency in small letters", "told: invalid_arguments amount.currency", args=refund(currency='"inr"')),
    arguments("currency null", "told: invalid_arguments amount.currency", args=refund(currency="null")),
]  # fmt: skip

CHARACTERS = [
    arguments("NUL by an escape", FORBIDDEN, args=refund(reason='"a\\u0000b"')),
    arguments("NUL as a byte", {**BROKEN, ANTHROPIC_XML: FORBIDDEN}, args=refund(reason='"a\x00b"')),
    arguments("lone surrogate by an escape", FORBIDDEN, args=refund(reason='"\\ud800"')),
    arguments("surrogates in the wrong order", FORBIDDEN, args=refund(reason='"\\udc00\\ud800"')),
    arguments("a whole pair of surrogates", WRITE, args=refund(reason='"\\ud83d\\ude00"')),
    arguments("lone surrogate in a field's name", FORBIDDEN, args=refund(**{"\ud800": "1"})),
    arguments("id with a zero-width space", "told: invalid_arguments payment_id",
              args=refund(payment_id='"pay_9002\\u200b"')),
    arguments("id with a mark of direction", "told: invalid_arguments payment_id",
              args=refund(payment_id='"pay_9002\\u202e"')),
    arguments("id as a number", "told: invalid_arguments order_id", args=refund(order_id="8472")),
    arguments("id in other digits", "told: invalid_arguments order_id", args=refund(order_id='"８４７２"')),
    arguments("id with a leading space", "told: invalid_arguments order_id", args=refund(order_id='" 8472"')),
]  # fmt: skip

NAMES = {
    "of likeness": '"issue_refunds"', "in capitals": '"Issue_Refund"', "with a prefix": '"functions.issue_refund"',
    "with a zero-width space": '"issue_refund\\u200b"', "with a space": '"issue_refund "', "empty": '""',
    "in Cyrillic": '"issue_r\\u0435fund"', "that is nobody's": '"get_orders"',
}  # fmt: skip
UNKNOWN = "told: unknown_tool"
NATIVE = (OPENAI, ANTHROPIC, *MODES)


def calls(
    name: str, becomes: object, *made: Call, finish: str = "", only: tuple[str, ...] = (), **more: object
) -> Kind:
    turn = Odd(calls=made, finish=finish, **more)  # type: ignore[arg-type]
    return said("calls", name, becomes, turn, **({"only": only} if only else {}))  # type: ignore[arg-type]


CALLS = [
    *[calls(f"tool name {name}", UNKNOWN, Call(name=raw)) for name, raw in NAMES.items()],
    *[calls(f"tool name {name}", {ANTHROPIC_XML: told, "else": UNKNOWN}, Call(name=raw)) for name, raw, told in (
        ("with a lone surrogate", '"issue_refund\\ud800"', FORBIDDEN), ("with NUL", '"issue\\u0000"', FORBIDDEN),
        ("of 100 KB", json.dumps("x" * 100_000), "told: too_long"))],
    calls("tool name a number", INVALID, Call(name="5"), only=NATIVE),
    calls("tool name null", UNKNOWN, Call(name="null"), only=NATIVE),
    calls("tool name missing", UNKNOWN, Call(name=None), only=NATIVE),
    calls("id missing", WRITE, Call(id=None), only=NATIVE),
    calls("id null", WRITE, Call(id="null"), only=NATIVE),
    calls("id empty", WRITE, Call(id='""'), only=NATIVE),
    calls("id a number", INVALID, Call(id="5"), only=NATIVE),
    calls("two calls of one id", "get_order get_payments", READ, Call(**{**vars(PAYMENTS), "id": READ.id}),
          only=NATIVE),
    calls("type missing", {OPENAI: WRITE, ANTHROPIC: INVALID}, Call(kind=None), only=NATIVE),
    calls("type null", {OPENAI: WRITE, ANTHROPIC: INVALID}, Call(kind="null"), only=NATIVE),
    calls("type another", {"anthropic json": "told: no_usable_output", "else": INVALID},
          Call(kind='"custom"'), only=NATIVE),
    calls("index missing, one call", {OPENAI: WRITE, ANTHROPIC: INVALID}, Call(index=None),
          only=(*NATIVE[:2], "sse")),
    calls("index missing, two calls", {OPENAI: "told: ambiguous_calls", ANTHROPIC: INVALID},
          Call(**{**vars(READ), "index": None}), Call(**{**vars(PAYMENTS), "index": None}), only=(*NATIVE[:2], "sse")),
    calls("equal indexes, other ids", {OPENAI: "get_order get_payments", ANTHROPIC: "told: ambiguous_calls"},
          Call(**{**vars(READ), "index": "0"}), Call(**{**vars(PAYMENTS), "index": "0"}), only=(*NATIVE[:2], "sse")),
    calls("equal indexes, no ids", "told: ambiguous_calls", Call(**{**vars(READ), "index": "0", "id": None}),
          Call(**{**vars(PAYMENTS), "index": "0", "id": None}), only=(*NATIVE[:2], "sse")),
    calls("equal indexes, one tool, no ids", {OPENAI: BAD_JSON, ANTHROPIC: "told: ambiguous_calls"},
          *[Call(index="0", id=None)] * 2, only=(*NATIVE[:2], "sse")),
    calls("index jumping", "get_order get_payments", Call(**{**vars(READ), "index": "3"}),
          Call(**{**vars(PAYMENTS), "index": "900000000"}), only=(*NATIVE[:2], "sse")),
    calls("index a boolean", INVALID, Call(index="true"), only=(*NATIVE[:2], "sse")),
    calls("index a text", INVALID, Call(index='"0"'), only=(*NATIVE[:2], "sse")),
    calls("two writes", "told: write_must_stand_alone", Call(), Call(id='"call_b"')),
    calls("read and write", "told: write_must_stand_alone", READ, Call()),
    calls("write and read", "told: write_must_stand_alone", Call(), READ),
    calls("two reads", "get_order get_payments", READ, PAYMENTS),
    calls("65 reads", OUTPUT, *[READ] * 65),
    calls("text beside a call", WRITE, Call(), text='"I propose it."', only=NATIVE),
    calls("a second call unfinished", {"anthropic json": NOT_JSON, "else": BAD_JSON}, READ,
          Call(changed=lambda text: text[:30])),
    calls("the text contract inside a native draft", "draft", text=json.dumps(obj(("tool", '"issue_refund"'))),
          only=NATIVE),
    calls("prose around the call", BAD_JSON, text=json.dumps('I propose {"tool": "get_order", "args": {}}'),
          only=(ANTHROPIC_XML, *MODES)),
    calls("a native call in the text dialect", OUTPUT, blocks=(
        '{"type": "tool_use", "id": "t", "name": "get_order", "input": {"order_id": "8472"}}',),
        finish='"tool_use"', only=(ANTHROPIC_XML, *MODES)),
    calls("legacy function_call", "get_order", finish='"function_call"', only=(OPENAI, *MODES),
          more=(("function_call", obj(("name", '"get_order"'), ("arguments", json.dumps('{"order_id": "8472"}')))),)),
    calls("legacy function_call beside a call", "told: ambiguous_calls", READ, only=(OPENAI, *MODES),
          more=(("function_call", obj(("name", '"get_order"'), ("arguments", json.dumps('{"order_id": "8472"}')))),)),
    calls("tool_calls that is no list", INVALID, finish="tool_calls", only=(OPENAI, *MODES),
          more=(("tool_calls", '{"0": {}}'),)),
    calls("tool_calls of null", INVALID, finish="tool_calls", only=(OPENAI, *MODES),
          more=(("tool_calls", "[null]"),)),
    calls("function null", INVALID, finish="tool_calls", only=(OPENAI, "json"),
          more=(("tool_calls", '[{"id": "c", "type": "function", "function": null}]'),)),
]  # fmt: skip

NOTHING = "told: no_usable_output"
DRAFT = Odd(says='"Thank you."')


def turn(
    name: str, becomes: Becomes, only: tuple[str, ...] = (), patch: tuple[bytes, bytes] = (b"", b""), **made: object
) -> Kind:
    more = {"only": only} if only else {}
    return said("turns", name, becomes, Odd(**made), patch=patch, **more)  # type: ignore[arg-type]


TURNS = [
    turn("a draft", "draft", says='"Thank you."'),
    turn("content null", NOTHING, text="null"),
    turn("content empty", NOTHING, text='""'),
    turn("content blank", NOTHING, text='" \\n\\t\\u00a0\\u3000"'),
    turn("content of zero-width characters", NOTHING, text='"\\u200b\\ufeff\\u2060"'),
    turn("content a number", INVALID, text="5"),
    turn("content an object", INVALID, text='{"text": "Thank you."}'),
    turn("draft with NUL", FORBIDDEN, says='"Thank\\u0000you."'),
    turn("draft with a lone surrogate by an escape", FORBIDDEN, says='"Thank you\\udfff."'),
    turn("text with a lone surrogate as bytes", FORBIDDEN, text='"@@"', patch=(b"@@", b"\xed\xbf\xbf")),
    turn("text with half a character as bytes", FORBIDDEN, text='"@@"', patch=(b"@@", b"\xe2\x82")),
    turn("text with an overlong NUL as bytes", FORBIDDEN, text='"@@"', patch=(b"@@", b"\xc0\x80")),
    turn("draft of 100 KB", "told: too_long", says=json.dumps("word " * 20_000)),
    turn("tool calls without one", NOTHING, text='""', finish="tool_calls"),
    turn("tool calls without one, with text", NOTHING, says='"I shall look."', finish="tool_calls",
         only=NATIVE),
    turn("cut by length", "told: cut_by_length", says='"Your refund of 2,000 has been is"', finish="length"),
    turn("refusal", "told: refused_by_model", says='"I will not."', finish='"refusal"', only=(ANTHROPIC, ANTHROPIC_XML,
         *MODES)),
    turn("refusal beside a call", "told: refused_by_model", calls=(Call(),), finish='"refusal"',
         only=(ANTHROPIC, ANTHROPIC_XML, *MODES)),
    turn("refusal in a field of its own", "told: refused_by_model", more=(("refusal", '"I will not."'),),
         only=(OPENAI, *MODES)),
    turn("content filter", "told: content_filtered", says='"Your"', finish='"content_filter"',
         only=(OPENAI, *MODES)),
    turn("content filter beside a call", "told: content_filtered", calls=(Call(),), finish='"content_filter"',
         only=(OPENAI, *MODES)),
    turn("finish of no known word", "told: unfinished", calls=(Call(),), finish='"abort"'),
    turn("finish of a compatible server's word", "draft", says='"Thank you."', finish='"eos"', only=(OPENAI, *MODES)),
    turn("finish null", {"json": "told: unfinished", "sse": "later: stream_cut"}, calls=(Call(),), finish="null"),
    turn("finish a number", INVALID, says='"Thank you."', finish="1"),
    turn("paused", "told: unfinished", says='"Thank you."', finish='"pause_turn"', only=(ANTHROPIC, ANTHROPIC_XML,
         *MODES)),
    turn("thinking before the text", "draft", says='"Thank you."',
         blocks=('{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}',
                 '{"type": "redacted_thinking", "data": "eA=="}'), only=(ANTHROPIC, ANTHROPIC_XML, *MODES)),
    turn("thinking alone", NOTHING, blocks=('{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}',),
         only=(ANTHROPIC, ANTHROPIC_XML, *MODES)),
    turn("thinking beside the text", "draft", says='"Thank you."', more=(("reasoning_content", '"Hm."'),),
         only=(OPENAI, *MODES)),
    turn("a block of an unknown type", "draft", says='"Thank you."', blocks=('{"type": "surprise", "x": [1]}',),
         only=(ANTHROPIC, ANTHROPIC_XML, *MODES)),
    turn("a tool of the provider's own", "draft", says='"Thank you."',
         blocks=('{"type": "server_tool_use", "id": "s", "name": "issue_refund", "input": {}}',),
         only=(ANTHROPIC, ANTHROPIC_XML, *MODES)),
    turn("a block without a type", INVALID, says='"Thank you."', blocks=('{"text": "x"}',),
         only=(ANTHROPIC, ANTHROPIC_XML, *MODES)),
    turn("a block with a field of our own fold", INVALID, finish='"tool_use"', blocks=(
         '{"type": "tool_use", "id": "t", "name": "get_order", "input": {"order_id": "8472"}, "input_json": "{}"}',),
         only=(ANTHROPIC, *MODES)),
    *[turn(f"usage {name}", "draft", says='"Thank you."', count=raw) for name, raw in {
        "missing": None, "null": "null", "negative": "-5", "a text": '"7"', "a boolean": "true", "a float": "7.5",
        "of 30 digits": "9" * 30, "a list": "[]",
    }.items()],
    turn("usage of 31 digits", BAD_JSON, says='"Thank you."', count="9" * 31),
    turn("usage of 5,000 digits", BAD_JSON, says='"Thank you."', count="9" * 5000),
    turn("usage NaN", BAD_JSON, says='"Thank you."', count="NaN"),
    turn("model missing", "draft", says='"Thank you."', model=None),
    turn("model null", "draft", says='"Thank you."', model="null"),
    turn("model a number", INVALID, says='"Thank you."', model="5"),
    turn("model with NUL and a lone surrogate", "draft", says='"Thank you."', model='"m\\u0000\\ud800"'),
    turn("unknown fields", "draft", says='"Thank you."', top=(("x_custom", '{"deep": [1, {"a": null}]}'),)),
    turn("a field twice in the answer", BAD_JSON, says='"Thank you."', top=(("type", '"x"'), ("type", '"message"'))),
    turn("NaN in the answer", BAD_JSON, says='"Thank you."', top=(("logprob", "NaN"),)),
    turn("5,000 brackets in the answer", NOT_JSON, says='"Thank you."', top=(("x", "[" * 5000 + "]" * 5000),)),
    turn("the word of our own records in the answer", "draft", says='"Thank you."',
         top=(("fault", '"invalid_answer"'), ("said", '"x"'), ("input", "1"), ("output", "2"), ("cached", "3"))),
]  # fmt: skip

SAID = [*ARGUMENTS, *AMOUNTS, *CHARACTERS, *CALLS, *TURNS]
