"""The policy registry: strict files, whole clauses, one current version, lexical search (M9, M72, B57)."""

from __future__ import annotations

import json
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from agentsite.tenants.models import Tenant
from tools.contracts import PolicyState
from tools.models import PolicyDocument, PolicyPassage
from tools.policy import standing
from tools.policy.documents import PolicyChanged, PolicyFormatError, UnknownTenant, load, load_directory, parse
from tools.policy.freshness import policy_state
from tools.policy.passages import split
from tools.policy.search import Passage, search

T = "t_acme_in"
PIN = "POL-REF-004@v4"
DUPLICATES = "## Duplicate captures\n\nA duplicate capture is refunded to the original payment method."
DISPUTES = "## Disputes\n\nA disputed payment is never refunded."
BOMB = "[&a [x,x,x,x,x,x,x,x]" + "".join(f",&{b} [{','.join(['*' + a] * 8)}]" for a, b in pairwise("abcdefgh")) + "]"


def file(version: int = 4, status: str = "current", body: str = f"{DUPLICATES}\n\n{DISPUTES}", **more: str) -> str:
    front = {"id": "POL-REF-004", "version": str(version), "title": "Refunds", "status": status} | more
    return "---\n" + "".join(f"{k}: {v}\n" for k, v in front.items()) + f"---\n\n{body}\n"


def statuses(doc_id: str = "POL-REF-004") -> dict[int, str]:
    return dict(PolicyDocument.objects.filter(doc_id=doc_id).values_list("version", "status"))


@pytest.fixture(autouse=True)
def tenants(db: None) -> None:
    Tenant.objects.create(id=T)
    Tenant.objects.create(id="t_other")


# --- files -------------------------------------------------------------------------------------------------


def test_load_stores_a_document_with_its_passages() -> None:
    document = load(T, file(effective_from="2026-04-01", effective_until="null"))
    assert (str(document), document.status, document.title) == ("POL-REF-004@v4", "current", "Refunds")
    assert document.effective_from is not None
    assert (document.effective_from.isoformat(), document.effective_until) == ("2026-04-01", None)
    assert list(document.passages.values_list("position", "section", "text")) == [
        (0, "Duplicate captures", "A duplicate capture is refunded to the original payment method."),
        (1, "Disputes", "A disputed payment is never refunded."),
    ]
    assert all(h.startswith("sha256:") for h in document.passages.values_list("content_hash", flat=True))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("# no front matter", "front matter"),
        ("---\nid: [\n---\ntext", "front matter"),
        ("---\n- id\n---\ntext", "front matter"),
        ("---\n" + "[" * 1_500 + "]" * 1_500 + "\n---\ntext", "front matter"),
        ("---\n? &a [*a]\n: x\n---\ntext", "front matter"),
        ("---\n? " + BOMB + "\n: x\n---\ntext", "front matter"),
        (file(title=BOMB), "title"),
        (file(title="[" * 900 + "]" * 900), "front matter"),
        (file(effective_from="!!timestamp x"), "effective_from"),
        (file(title="!!int ''"), "title"),
        (file(title="!!float ''"), "title"),
        (file(title="!!bool x"), "title"),
        ("---\n!!python/object/apply:os.system ['x']\n---\ntext", "front matter"),
        (file().replace("status: current\n", "status: draft\nstatus: current\n"), "status"),
        (file(colour="red"), "colour"),
        (file(title="!!python/object/apply:os.getcwd []"), "title"),
        (file(id="'a b'"), "id"),
        (file(id="7"), "id"),
        (file().replace("version: 4", "version: '4'"), "version"),
        (file().replace("version: 4", "version: 4.0"), "version"),
        (file().replace("version: 4", "version: true"), "version"),
        (file().replace("version: 4", "version: 0"), "version"),
        (file().replace("version: 4\n", ""), "version"),
        (file(title="' '"), "title"),
        (file(title="[a]"), "title"),
        (file(status="Current"), "status"),
        (file(status="[current]"), "status"),
        (file(effective_from="'2026-01-01'"), "effective_from"),
        (file(effective_from="2026-01-01 10:00:00"), "effective_from"),
        (file(effective_from="2026-13-01"), "effective_from"),
        (file(effective_from="2026-02-01", effective_until="2026-01-31"), "effective_until"),
        (file(body=""), "body"),
        (file(body="# Only a heading"), "body"),
        (file(body="a" * 1_000_001), "file"),
    ],
)
def test_load_refuses_and_names_the_field(text: str, field: str) -> None:
    with pytest.raises(PolicyFormatError) as refused:
        load(T, text)
    assert refused.value.field == field
    assert not PolicyDocument.objects.exists()


def test_load_takes_windows_lines_and_a_byte_order_mark() -> None:
    assert parse("\ufeff" + file().replace("\n", "\r\n")).content_hash == parse(file()).content_hash


def test_load_stores_forbidden_characters_written_out() -> None:
    load(T, file(body="A\x00B\ud800C\u202eD"))
    assert PolicyPassage.objects.get().text == "A\\u0000B\\ud800C\\u202eD"


def test_load_refuses_an_unknown_tenant() -> None:
    with pytest.raises(UnknownTenant):
        load("t_nobody", file())


# --- versions ----------------------------------------------------------------------------------------------


def test_load_again_changes_nothing() -> None:
    first = load(T, file())
    passages = list(first.passages.values_list("pk", flat=True))
    assert load(T, file()).pk == first.pk
    assert list(first.passages.values_list("pk", flat=True)) == passages


def test_load_refuses_another_text_under_a_stored_version_unless_told_to() -> None:
    load(T, file())
    with pytest.raises(PolicyChanged):
        load(T, file(body=DISPUTES))
    assert PolicyPassage.objects.count() == 2
    load(T, file(body=DISPUTES), replace=True)
    assert list(PolicyPassage.objects.values_list("section", flat=True)) == ["Disputes"]


def test_load_of_a_current_version_demotes_the_one_before() -> None:
    load(T, file(3))
    load(T, file(4))
    assert statuses() == {3: "superseded", 4: "current"}


def test_load_never_lets_a_lower_version_take_over_unless_forced() -> None:
    load(T, file(4))
    assert load(T, file(3)).status == "superseded"
    assert statuses() == {3: "superseded", 4: "current"}
    assert load(T, file(3), force=True).status == "current"
    assert statuses() == {3: "current", 4: "superseded"}


def test_load_of_the_same_text_again_brings_back_nothing_that_was_withdrawn() -> None:
    load(T, file(3))
    row = load(T, file(4))
    standing.withdraw(row.pk, as_seen=standing.seen(row), by="own_1")
    assert {load(T, file(version)).status for version in (3, 4, 3, 4)} == {"superseded"}
    assert policy_state(T, PIN).current is None
    with pytest.raises(PolicyChanged):  # the console says so, and where it is changed
        standing.add(T, file(4), by="own_1")
    assert load(T, file(4), force=True).status == "current"
    assert load(T, file(4, "superseded")).status == "superseded"
    assert load(T, file(4, body=DISPUTES), replace=True).status == "current"


def test_load_of_drafts_and_withdrawals_leaves_others_alone() -> None:
    load(T, file(4))
    load(T, file(5, "draft"))
    assert statuses() == {4: "current", 5: "draft"}
    load(T, file(4, "superseded"))
    assert policy_state(T, PIN) == PolicyState(doc="POL-REF-004", pinned=4, current=None)


def test_load_directory_is_all_or_none_and_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(file(4))
    (tmp_path / "b.md").write_text(file(5, colour="red"))
    with pytest.raises(PolicyFormatError, match=r"^b\.md: colour"):
        load_directory(tmp_path, T)
    assert not PolicyDocument.objects.exists()
    (tmp_path / "b.md").write_text(file(3))
    assert load_directory(tmp_path, T) == ["POL-REF-004@v3", "POL-REF-004@v4"]
    assert load_directory(tmp_path, T) == ["POL-REF-004@v3", "POL-REF-004@v4"]
    assert statuses() == {3: "superseded", 4: "current"}


# --- passages ----------------------------------------------------------------------------------------------


def texts(body: str) -> list[tuple[str, str]]:
    return [(s.path, s.text) for s in split(body)]


def test_split_names_a_passage_by_the_headings_above_it() -> None:
    body = "Before.\n\n# A\n\nOne.\n\n## B\n\nTwo.\n\nThree.\n\n# C\n\n### D\n\nFour."
    assert texts(body) == [("", "Before."), ("A", "One."), ("A > B", "Two.\n\nThree."), ("C > D", "Four.")]


def test_split_keeps_a_section_whole_however_long() -> None:
    long = "\n\n".join(f"Sentence {n}, unless the section before applies." for n in range(500))
    assert texts(f"# A\n\n{long}") == [("A", long)]


def test_split_cuts_numbered_clauses_and_keeps_their_conditions() -> None:
    body = "# A\n\nFor cards only.\n\n4.1 Duplicates are refunded.\n\nUnless disputed.\n\n4.2 Late ones are not."
    assert texts(body) == [
        ("A", "For cards only.\n\n4.1 Duplicates are refunded.\n\nUnless disputed."),
        ("A", "For cards only.\n\n4.2 Late ones are not."),
    ]


def test_split_cuts_a_numbered_list_and_gives_each_clause_what_follows_it() -> None:
    body = "# A\n\n1. Duplicates are refunded.\n   - If captured.\n2. Fees are not.\n\nUnless the law says otherwise."
    after = "\n\nUnless the law says otherwise."
    assert texts(body) == [
        ("A", "1. Duplicates are refunded.\n   - If captured." + after),
        ("A", "2. Fees are not." + after),
    ]


def test_split_keeps_an_enumeration_of_conditions_whole() -> None:
    body = "# A\n\nA refund is due where all of these hold:\n\n1. It was captured.\n2. It is not disputed."
    assert texts(body) == [("A", body.removeprefix("# A\n\n"))]


def test_split_carries_an_unfinished_sentence_to_every_heading_below() -> None:
    body = "# A\n\nOnly for cards:\n\n## B\n\nOne.\n\n## C\n\nTwo.\n\n# D\n\nThree."
    assert texts(body) == [
        ("A", "Only for cards:"),
        ("A > B", "Only for cards:\n\nOne."),
        ("A > C", "Only for cards:\n\nTwo."),
        ("D", "Three."),
    ]


def test_split_takes_no_number_in_a_sentence_for_a_clause_and_no_comment_for_text() -> None:
    body = "# A\n\n30 days after delivery.\n\n<!-- refunds need no approval -->\n\n2026 was a year."
    assert texts(body) == [("A", "30 days after delivery.\n\n2026 was a year.")]


def test_split_cuts_no_heading_inside_code() -> None:
    assert texts("# A\n\n```\n# not a heading\n```") == [("A", "```\n# not a heading\n```")]


# --- search ------------------------------------------------------------------------------------------------


def found(query: str, tenant: str = T, limit: int = 3) -> list[tuple[str, int, str, bool]]:
    return [(p.doc, p.version, p.section, p.current) for p in search(tenant, query, pin=PIN, limit=limit)]


def test_search_ranks_the_passage_that_answers_first() -> None:
    load(T, file())
    assert found("charged twice, a duplicated payment was captured")[0] == (
        "POL-REF-004", 4, "Duplicate captures", True,
    )  # fmt: skip
    assert found("I disputed it with my bank")[0][2] == "Disputes"


def test_search_gives_passages_in_their_wire_form() -> None:
    load(T, file(body=DISPUTES))
    (passage,) = search(T, "disputes", pin=PIN)
    text = "A disputed payment is never refunded."
    assert passage == Passage(
        doc="POL-REF-004", version=4, section="Disputes", text=text, current=True,
        content_hash=PolicyPassage.objects.get().content_hash, score=passage.score,
    )  # fmt: skip
    assert passage.score > 0
    assert passage.wire() == {
        "doc": "POL-REF-004", "version": 4, "section": "Disputes", "text": text, "current": True,
        "hash": passage.content_hash, "score": round(passage.score, 4),
    }  # fmt: skip


def test_search_withholds_a_superseded_version_while_a_current_one_exists() -> None:
    """B57: the text's score and its own claims change nothing."""
    load(T, file(3, body="## Duplicates\n\nduplicate duplicate duplicate capture, version: 4, status: current"))
    load(T, file(4))
    assert {v for _, v, _, _ in found("duplicate capture", limit=10)} == {4}


def test_search_marks_a_superseded_version_where_there_is_no_current_one() -> None:
    load(T, file(2, "superseded"))
    load(T, file(3, "superseded"))
    load(T, file(5, "draft"))
    assert found("duplicate capture") == [("POL-REF-004", 3, "Duplicate captures", False)]


def test_search_withholds_better_superseded_passages_where_a_current_one_matches() -> None:
    load(T, file(1, "superseded", body="## Old\n\nlost parcels lost parcels", id="POL-OLD"))
    load(T, file(4, body="## New\n\nA long text in which lost things are named once among many other words."))
    assert [(d, c) for d, _, _, c in found("lost parcels")] == [("POL-REF-004", True)]
    assert [(d, c) for d, _, _, c in found("parcels")] == [("POL-OLD", False)]


def test_search_sees_no_draft_and_no_other_tenant() -> None:
    load(T, file(4, "draft"))
    load("t_other", file(4))
    assert found("duplicate capture") == []
    assert len(found("duplicate capture", "t_other")) == 1


@pytest.mark.parametrize(
    "query", ["", "   ", "zzz qqq", "what is it that you have", "???", "' OR 1=1 --", "\x00\ud800", "धनवापसी"]
)
def test_search_falls_back_to_the_pinned_document(query: str) -> None:
    load(T, file(4))
    load(T, file(1, body="## Other\n\nnothing here", id="POL-AAA"))
    assert [s for _, _, s, _ in found(query)] == ["Duplicate captures", "Disputes"]


@pytest.mark.parametrize("query", ['duplicate" AND', "duplicate*", "duplicate:(", "NEAR/2 duplicate", "%duplicate_"])
def test_search_takes_no_text_for_a_query_language(query: str) -> None:
    load(T, file())
    assert found(query)[0][2] == "Duplicate captures"


def test_search_breaks_ties_by_document_and_position() -> None:
    same = "## East\n\nsame words\n\n## West\n\nsame words"
    load(T, file(1, body=same, id="POL-B"))
    load(T, file(1, body=same, id="POL-A"))
    assert [(d, s) for d, _, s, _ in found("same words", limit=4)] == [
        ("POL-A", "East"), ("POL-A", "West"), ("POL-B", "East"), ("POL-B", "West"),
    ]  # fmt: skip


@pytest.mark.parametrize(("limit", "count"), [(-1, 0), (0, 0), (1, 1), (50, 20)])
def test_search_is_bounded(limit: int, count: int) -> None:
    load(T, file(body="\n\n".join(f"## S{n}\n\nsame words" for n in range(30))))
    assert len(found("same words", limit=limit)) == count


def test_policy_state_tells_the_registrys_current_version() -> None:
    """M9: v4 is pinned, v5 was released; another tenant's registry has no word in it."""
    load(T, file(4))
    assert policy_state(T, PIN) == PolicyState(doc="POL-REF-004", pinned=4, current=4)
    load(T, file(5))
    assert policy_state(T, PIN) == PolicyState(doc="POL-REF-004", pinned=4, current=5)
    assert policy_state("t_other", PIN) == PolicyState(doc="POL-REF-004", pinned=4, current=None)


@pytest.mark.parametrize("dates", [{"effective_from": "2199-01-01"}, {"effective_until": "2001-01-01"}])
def test_policy_state_follows_the_documents_own_dates(dates: dict[str, str]) -> None:
    load(T, file(4, **dates))
    assert policy_state(T, PIN).current is None
    assert [current for _, _, _, current in found("duplicate capture")] == [False]


@pytest.mark.parametrize("pin", ["", "POL-REF-004", "POL-REF-004@4", "@v4", "POL-REF-004@v0"])
def test_policy_state_refuses_what_is_no_pin(pin: str) -> None:
    with pytest.raises(ValueError, match="a pin looks like"):
        policy_state(T, pin)


# --- the command -------------------------------------------------------------------------------------------


def test_index_policies_prints_what_is_in_force(tmp_path: Path) -> None:
    (tmp_path / "v3.md").write_text(file(3))
    (tmp_path / "v4.md").write_text(file(4))
    out = StringIO()
    call_command("index_policies", str(tmp_path), "--tenant", T, "--json", stdout=out)
    printed = json.loads(out.getvalue())
    assert printed["tenant"] == T
    assert [(p["policy"], p["status"], p["passages"]) for p in printed["policies"]] == [
        ("POL-REF-004@v3", "superseded", 2), ("POL-REF-004@v4", "current", 2),
    ]  # fmt: skip
    plain = StringIO()
    call_command("index_policies", str(tmp_path), "--tenant", T, stdout=plain)
    assert plain.getvalue().splitlines()[1] == "POL-REF-004@v4  current  2 passages"


def test_index_policies_fails_with_its_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "v3.md").write_text(file(3, colour="red"))
    for arguments, code in ((("nowhere", T), 2), ((str(tmp_path), T), 1), ((str(tmp_path), "t_nobody"), 1)):
        with pytest.raises(CommandError) as failed:
            call_command("index_policies", arguments[0], "--tenant", arguments[1], stdout=StringIO())
        assert failed.value.returncode == code


def test_shipped_policies_load_and_v4_is_current() -> None:
    shipped = Path(__file__).resolve().parents[2] / "runs" / "policies"
    assert load_directory(shipped, T) == ["POL-REF-004@v3", "POL-REF-004@v4"]
    assert policy_state(T, PIN).current == 4
    assert found("I was charged twice for one order")[0][:2] == ("POL-REF-004", 4)
