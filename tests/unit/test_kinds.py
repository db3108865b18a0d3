"""Every kind of odd answer, over real sockets, whole and streamed, in each dialect: a word of the table, nothing else.

The table stands in `tests/models/kinds_of_*.py`; it is printed when it has held, and `docs/models.md` repeats it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from agentsite import env
from runs import backends
from runs.contracts import Final, Invalid, LLMTurnResult
from runs.errors import ModelError, ModelRefused, ModelUnavailable
from runs.inference.dialects import BY_PROVIDER, recall
from runs.inference.dialects.answers import refusal
from runs.inference.dialects.dialect import Asked
from runs.inference.parse import parse
from runs.inference.transport import Provider, exchange
from runs.prompt import build_prompt
from tests.conftest import Say
from tests.house.walls import ROOT
from tests.models.kinds import Kind, table
from tests.models.kinds_of_answers import SENT
from tests.models.kinds_of_calls import SAID
from tests.models.server import Fault, ModelServer
from tests.models.speaking import PROVIDERS
from tests.unit.states_8472 import TOOLS, gathered, state
from tools import registry
from tools.errors import InvalidArguments

KINDS = [*SAID, *SENT]
PROMPT = build_prompt(state(gathered()), TOOLS)
OWED = {
    "order_id": "8472", "payment_id": "pay_9002", "amount": {"amount": "2000.00", "currency": "INR"},
    "reason": "duplicate_capture",
}  # fmt: skip
READ = {"order_id": "8472"}
DOCS = (ROOT / "docs/models.md").read_text()
DRAFTS = ("Thank you.", "Thank you, that is all.", '{"tool": "issue_refund"}')


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, ModelServer]]:
    """One server a dialect, which says what the test lays before it."""
    made = {provider: ModelServer(provider) for provider in PROVIDERS}
    try:
        for server in made.values():
            server.__enter__()
        yield made
    finally:
        for server in made.values():
            server.die()


def asked(server: ModelServer, mode: str, kind: Kind) -> LLMTurnResult:
    """One call to this server, which answers with this kind. Raises ModelError and nothing else."""
    sent = kind.sends(server.provider, mode)
    assert sent is not None
    server.faults = [Fault(raw=sent.body, kind=sent.type, headers=dict(sent.headers), cut=sent.cut)]
    asks = Asked(model="m-2026", prompt=PROMPT, max_output_tokens=800, stream=mode == "sse")
    place = Provider(name=server.provider, base_url=server.base_url, key=server.key, timeout_s=60)
    return exchange(BY_PROVIDER[server.provider], asks, place, backends.post_to_model)


def became(server: ModelServer, mode: str, kind: Kind) -> str:
    """What the rest of the product makes of this kind, in the table's words."""
    try:
        turn = asked(server, mode, kind)
    except ModelError as error:
        return f"{'final' if isinstance(error, ModelRefused) else 'later'}: {error.slug}"
    assert turn.raw.isascii() and recall(f"{server.provider}:m-2026", turn.raw) == turn
    return judged(turn)


def judged(turn: LLMTurnResult) -> str:
    assert all(0 <= n <= 3 * 10**9 for n in (turn.input_tokens, turn.output_tokens, turn.cached_tokens))
    parsed = parse(turn, first_call=1, turn_number=1, tools=TOOLS)
    if isinstance(parsed, Invalid):
        assert json.dumps(parsed.detail, allow_nan=False).isascii()
        return f"told: {parsed.slug}"
    if isinstance(parsed, Final):
        assert parsed.text.replace("\U0001f600", "") in DRAFTS, "half a draft, or another one"
        return "draft"
    try:
        made = [registry.normalise(proposal.tool, proposal.args) for proposal in parsed]
    except InvalidArguments as error:
        return f"told: invalid_arguments {error.field}"
    wanted = [READ if p.tool.startswith("get_") else {**OWED, "reason": p.args["reason"]} for p in parsed]
    assert [p.args for p in parsed] == wanted, "half a proposal, or another one"
    assert len(made) == len(parsed)
    return " ".join(proposal.tool for proposal in parsed)


@pytest.mark.parametrize("kind", KINDS, ids=[f"{k.group}: {k.name}" for k in KINDS])
def test_kind_becomes_what_the_table_says(kind: Kind, servers: dict[str, ModelServer]) -> None:
    found = {(p, m): became(servers[p], m, kind) for p, m in kind.cells()}
    assert found == {(p, m): kind.expected(p, m) for p, m in kind.cells()}
    assert found and all(server.wrong == [] for server in servers.values())


def test_table_has_every_kind_once(say: Say) -> None:
    names = [(kind.group, kind.name) for kind in KINDS]
    assert len(names) == len(set(names))
    cells = sum(len(kind.cells()) for kind in KINDS)
    say(f"{len(KINDS)} kinds, {cells} cells\n" + "\n".join(table(KINDS)))


def test_docs_repeat_the_table_of_kinds() -> None:
    shown = DOCS.split("<!-- kinds -->")[1].split("<!-- /kinds -->")[0].strip()
    assert shown == "\n".join(table(KINDS))


def test_docs_name_what_each_status_becomes() -> None:
    rows = re.findall(r"^\| ([0-9]{3}(?:, [0-9]{3})*) \| `([a-z_]+)` \| (later)?", DOCS, flags=re.M)
    for statuses, slug, later in rows:
        for status in statuses.split(", "):
            error = refusal(int(status), b"{}")
            assert (error.slug, isinstance(error, ModelUnavailable)) == (slug, bool(later)), status
    assert len(rows) == 8


def test_docs_name_the_defaults_of_today() -> None:
    fields = env.Environment.model_fields
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \| .* \| ([0-9, ]+) \|$", DOCS, flags=re.M)
    shown = {name: value for names, values in rows for name, value in _pairs(names, values)}
    assert {name: float(fields[name].default) for name in shown} == {n: float(v) for n, v in shown.items()}
    assert len(shown) == 11


def _pairs(names: str, values: str) -> list[tuple[str, str]]:
    return list(zip(re.findall(r"[A-Z_]+", names), values.split(", "), strict=True))
