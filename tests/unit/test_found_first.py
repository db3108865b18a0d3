"""What was found for the goal before the first turn: in every prompt, first, whole as long as a window allows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from runs.contracts import Prompt, RunState, SeenObservation
from runs.inference.reading import read
from runs.prompt import build_prompt
from tests.unit.states_8472 import TOOLS, call, gathered, order, passage, seen, state
from tools.contracts import Json

pytestmark = pytest.mark.any_database

WINDOW, TAIL = 9_000, 1_000
HASH = "sha256:" + "ab" * 32


def found(*passages: Json, position: int = 1) -> SeenObservation:
    return seen(position, "search_policy", {"passages": list(passages)}, content_hash=HASH)


def clause(number: int, *, words: int = 20, **changes: Any) -> Json:
    text = f"Clause {number} holds. " + "word " * words
    return {**passage(), "section": f"Clause {number}", "text": text, "hash": HASH, "score": 1.5, **changes}


def numbered(first: int, observations: list[SeenObservation]) -> list[SeenObservation]:
    """The same, told from a later position on."""
    return [
        seen(first + n, o.source, o.content, call_id=o.call_id, args=o.args, content_hash=HASH)
        for n, o in enumerate(observations)
    ]


def filling(first: int, count: int) -> list[SeenObservation]:
    note = "the parcel was left with a neighbour " * 30
    return [call(first + n, "get_order", f"m{10 + n}.1", {**order(), "note": note}) for n in range(count)]


def run_of(*first: SeenObservation, fill: int = 0, **changes: Any) -> RunState:
    told = [*first, *numbered(10, gathered()), *filling(50, fill)]
    return state(told, **changes)


def prompt_of(run: RunState, window: int = WINDOW, tail: int = TAIL) -> Prompt:
    return build_prompt(run, TOOLS, window_tokens=window, tail_tokens=tail)


def text_of(prompt: Prompt) -> str:
    return prompt.messages[1].content


def shown(text: str, obs_id: str = "obs_1") -> Json:
    body = re.search(rf'<observation id="{obs_id}"[^>]*>(.*)</observation>', text)
    assert body is not None, text
    told: Json = json.loads(body.group(1))
    return told


def test_it_stands_first_under_the_ids_that_its_passages_are_cited_by() -> None:
    text = text_of(prompt_of(run_of(found(clause(1), clause(2, version=3, current=False)))))
    assert re.findall(r'<observation id="(obs_[0-9]+)"', text)[0] == "obs_1"
    assert [(p["id"], p["doc"], p["version"], p["section"], p["current"]) for p in shown(text)["passages"]] == [
        ("obs_1.1", "POL-REF-004", 4, "Clause 1", True), ("obs_1.2", "POL-REF-004", 3, "Clause 2", False),
    ]  # fmt: skip
    assert '"hash"' not in text and '"score"' not in text


def test_passages_of_a_search_of_the_model_s_own_have_ids_as_well() -> None:
    searched = call(12, "search_policy", "m2.1", {"passages": [clause(1), clause(2)]})
    text = text_of(prompt_of(state([*gathered()[:2], searched])))
    assert [p["id"] for p in shown(text, "obs_12")["passages"]] == ["obs_12.1", "obs_12.2"]


def test_id_that_a_passage_brings_along_is_not_its_id() -> None:
    text = text_of(prompt_of(run_of(found(clause(1, id="obs_9.9")))))
    assert [p["id"] for p in shown(text)["passages"]] == ["obs_1.1"]


@pytest.mark.parametrize("content", [None, {"passages": "none"}, {"passages": [7]}, {"passages": None}, []])
def test_content_of_another_shape_is_shown_as_it_is(content: Any) -> None:
    assert shown(text_of(prompt_of(run_of(seen(1, "search_policy", content))))) == content


def test_it_outlives_compaction_and_what_is_left_out_and_the_beginning_stays_the_same() -> None:
    first = found(clause(1), clause(2), clause(3))
    texts = [text_of(prompt_of(run_of(first, fill=fill))) for fill in range(0, 100, 9)]
    assert "<omitted>" in texts[-1] and "<compacted" in texts[-1]
    for text in texts:
        assert [p["text"] for p in shown(text)["passages"]] == [clause(n)["text"] for n in (1, 2, 3)]
    head = texts[0].partition("</observation>\n")[0]
    assert all(text.startswith(head) for text in texts)


def test_it_is_counted_in_the_room_of_the_prompt() -> None:
    run = run_of(found(*[clause(n, words=200) for n in (1, 2, 3)]), fill=40)
    prompt = prompt_of(run)
    assert prompt.fits and prompt.estimate <= WINDOW
    assert len(shown(text_of(prompt))["passages"]) == 3


def test_within_4_kb_every_passage_is_whole_and_beyond_that_the_best_ones_are() -> None:
    within = text_of(prompt_of(run_of(found(*[clause(n, words=200) for n in (1, 2, 3)]))))
    assert [len(p["text"]) > 900 for p in shown(within)["passages"]] == [True] * 3
    rows = [clause(n, words=300) for n in (1, 2, 3)]
    beyond = shown(text_of(prompt_of(run_of(found(*rows)))))
    assert [p["text"] for p in beyond["passages"]] == [row["text"] for row in rows[: len(beyond["passages"])]]
    assert 1 <= len(beyond["passages"]) < 3
    assert [p["id"] for p in beyond["passages_not_shown"]] == [
        f"obs_1.{n}" for n in range(len(beyond["passages"]) + 1, 4)
    ]
    assert beyond["reference"]["observation"] == "obs_1"


def test_earlier_runs_of_the_session_stand_beside_it_and_other_observations_do_not() -> None:
    session = seen(2, "session_history", {"cases": [{"outcome": "refunded"}]}, content_hash=HASH)
    attached = seen(3, "attachment", {"name": "bill.pdf"}, content_hash=HASH)
    text = text_of(prompt_of(run_of(found(clause(1)), session, attached, fill=90)))
    assert shown(text, "obs_2") == {"cases": [{"outcome": "refunded"}]}
    assert '<observation id="obs_3"' not in text, "only what was looked up stays"
    assert [o.obs_id for o in read(prompt_of(run_of(found(clause(1)), session))).observations][:2] == ["obs_1", "obs_2"]


@pytest.mark.parametrize("change", [{"kind": "error"}, {"call_id": "m1.9"}, {"source": "get_order"}])
def test_what_a_model_asked_for_and_what_failed_is_not_kept_for_good(change: Json) -> None:
    one = {"source": "search_policy", **change}
    odd = seen(1, one.pop("source"), {"passages": [clause(1)]}, content_hash=HASH, **one)
    assert '<observation id="obs_1"' not in text_of(prompt_of(run_of(odd, fill=40)))


def test_where_the_newest_turn_has_no_room_beside_it_it_is_named_in_short() -> None:
    """A run that forgot what it read last would read it again for ever."""
    alone = prompt_of(state([])).estimate
    run = run_of(found(*[clause(n, words=200) for n in (1, 2, 3)]))
    tight = prompt_of(run, window=alone + 500, tail=400)
    named = re.search(r'<compacted turn="0">(.*)</compacted>', text_of(tight))
    assert named is not None and tight.fits
    [kept] = json.loads(named.group(1))["beside"]
    assert [p["id"] for p in kept["told"]["passages"]] == ["obs_1.1", "obs_1.2", "obs_1.3"]
    assert '<observation id="obs_13"' in text_of(tight)


def test_same_state_has_the_same_bytes_whatever_the_order_of_its_observations() -> None:
    run = run_of(found(clause(1)), fill=12)
    other = state(reversed(run.observations), turns=run.turns)
    assert prompt_of(run) == prompt_of(other)
