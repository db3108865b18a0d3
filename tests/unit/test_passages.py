"""How a policy is cut: no clause without its condition, no passage from inside a sentence, nothing lost (M89)."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.policy import blocks
from tools.policy.passages import MAX_LINES, MAX_PASSAGES, MAX_TEXT, TooMuchText, split

pytestmark = pytest.mark.any_database
WORD = re.compile(r"\w+")


def texts(body: str) -> list[str]:
    return [section.text for section in split(body)]


def paths(body: str) -> list[str]:
    return [section.path for section in split(body)]


# --- sentences -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "A refund is due if\n\n1. it was captured, and\n2. it is not disputed.",
        "A refund is due where all of these hold:\n\n1. It was captured.\n2. It is not disputed.",
        "1. it was captured;\n2. it is not disputed.",
        "1. Cards, and\n2. Wallets.",
        "1. Duplicates are refunded.\n2. Unless they are disputed.",
        "1. Duplicates are refunded.\n2. but not twice.",
        "1. Duplicates are refunded.\n2. This does not apply to gift cards.",
        "4.1 Refunds are made\n\n4.2 Within thirty days.",
        "4.1 Duplicates are refunded.\n\n4.2 However, disputed ones are not.",
        "4.1 Duplicates are refunded.\n\n(b) except gift cards.",
        "**4.1** Duplicates are refunded.\n\n**4.2** Otherwise a person decides.",
        "4.1 A refund is due where:\n\n1. It was captured.\n2. It is not disputed.\n\nand the customer asks.",
        "1. Order number\n2. Payment number\n3. Reason",
        "1. Cards are refunded.\n\n   2. Unless disputed.\n\n   - Or frozen.",
        "1. Cards:\n   1. Visa is refunded.\n   2. Amex is not.",
    ],
)
def test_text_that_is_one_statement_is_one_passage(body: str) -> None:
    (found,) = texts(f"# A\n\n{body}")
    assert WORD.findall(found)[-len(WORD.findall(body)) :] == WORD.findall(body)


@pytest.mark.parametrize(
    ("heading", "body"),
    [
        ("A refund is due if", "1. The payment was captured.\n2. The payment is not disputed."),
        ("A refund is due where:", "1. The payment was captured.\n2. The payment is not disputed."),
        ("Refunds", "are made within thirty days."),
    ],
)
def test_heading_that_begins_a_sentence_stands_before_its_rest(heading: str, body: str) -> None:
    assert texts(f"## {heading}\n\n{body}") == [f"## {heading}\n\n{body}"]


def test_condition_of_a_list_or_a_section_stands_in_each_of_its_clauses() -> None:
    body = (
        "# A\n\n1. Duplicates are refunded.\n2. Fees are not.\n3. None of the above applies to gift cards.\n\n"
        "These need a receipt."
    )
    both = "\n\n3. None of the above applies to gift cards.\n\nThese need a receipt."
    assert texts(body) == [f"1. Duplicates are refunded.{both}", f"2. Fees are not.{both}"]


def test_clause_about_its_whole_section_stands_in_those_before_and_after_it() -> None:
    scope = "4.2 This section applies to cards only."
    body = f"4.1 Duplicates are refunded.\n\n{scope}\n\n4.3 Fees are not."
    assert texts(body) == [f"4.1 Duplicates are refunded.\n\n{scope}", f"{scope}\n\n4.3 Fees are not."]


def test_condition_that_ends_numbered_paragraphs_stands_in_each_of_them() -> None:
    end = "Sale goods are excluded."
    assert texts(f"(a) Duplicates are refunded.\n\nWithin a day.\n\n(b) Fees are.\n\n{end}") == [
        f"(a) Duplicates are refunded.\n\nWithin a day.\n\n{end}", f"(b) Fees are.\n\n{end}",
    ]  # fmt: skip
    assert texts(f"4.1 Duplicates are refunded.\n\n{end}\n\n4.2 Fees are.") == [
        f"4.1 Duplicates are refunded.\n\n{end}", "4.2 Fees are.",
    ]  # fmt: skip
    assert texts(f"1. One.\n2. Two.\n\n4.1 Fees are refunded.\n\n{end}")[:2] == ["1. One.", "2. Two."]


def test_condition_after_numbered_paragraphs_goes_to_its_own_unless_it_names_them_all() -> None:
    clauses = "4.1 Duplicates are refunded.\n\n4.2 Fees are not.\n\n"
    assert texts(clauses + "A person decides.") == [
        "4.1 Duplicates are refunded.", "4.2 Fees are not.\n\nA person decides.",
    ]  # fmt: skip
    assert texts(clauses + "These rules need a receipt.") == [
        "4.1 Duplicates are refunded.\n\nThese rules need a receipt.",
        "4.2 Fees are not.\n\nThese rules need a receipt.",
    ]


def test_condition_above_headings_stands_in_every_section_below_it_and_in_no_other() -> None:
    body = "# A\n\nGreetings.\n\nThis chapter applies to cards only.\n\n## B\n\nOne.\n\n### C\n\nTwo.\n\n# D\n\nThree."
    carried = "This chapter applies to cards only.\n\n"
    assert [(s.path, s.text) for s in split(body)] == [
        ("A", "Greetings.\n\nThis chapter applies to cards only."), ("A > B", f"{carried}One."),
        ("A > B > C", f"{carried}Two."), ("D", "Three."),
    ]  # fmt: skip


def test_condition_before_all_headings_stands_in_every_section() -> None:
    assert texts("Unless the law says otherwise.\n\n# A\n\nOne.")[1] == "Unless the law says otherwise.\n\nOne."


# --- Markdown ------------------------------------------------------------------------------------------------


def test_clause_takes_the_footnotes_and_definitions_it_refers_to() -> None:
    body = (
        "# A\n\n1. Duplicates are refunded.[^1]\n2. See [the form][f].\n3. Fees are not.\n\n# B\n\nOther things.\n\n"
        "[^1]: Except gift cards.\n\n    And vouchers.\n[^2]: Only-by-law.\n\n[f]: https://acme.example/form"
    )
    found = texts(body)
    assert found[0] == "1. Duplicates are refunded.[^1]\n\n[^1]: Except gift cards.\n\n    And vouchers."
    assert found[1] == "2. See [the form][f].\n\n[f]: https://acme.example/form"
    assert found[2] == "3. Fees are not."
    assert found[3].split("\n\n") == ["Other things.", "[^2]: Only-by-law."]


@pytest.mark.parametrize(
    ("clause", "note"),
    [
        ("Refunds take 30 days.\\*", "\\* Not for gift cards."),
        ("Refunds take 30 days†.", "† Not for gift cards."),
        ("Refunds take 30 days.¹", "¹ Not for gift cards."),
        ("Refunds take 30 days.<sup>1</sup>", "<sup>1</sup> Not for gift cards."),
        ("Refunds take 30 days.[^a]", "[^A]: Never"),
        ("Refunds take 30 days.[^a]", "[^a]: Not for[^b] gift cards.\n\n[^b]: Or vouchers."),
    ],
)
def test_mark_brings_its_note_from_another_section(clause: str, note: str) -> None:
    found = texts(f"# A\n\n{clause}\n\n# B\n\nOther things.\n\n{note}")
    assert found == [f"{clause}\n\n{note}", "Other things."]


def test_footnote_that_nothing_refers_to_is_kept_and_a_comment_is_not() -> None:
    body = "# A\n\nOne.\n\n[^9]: Never\n\n[//]: # (no approval is needed)\n\n<!-- nor here --> Two.\n\n<!-- open\n\n# B"
    assert texts(body) == ["One.\n\n[^9]: Never\n\n Two.\n\n<!-- open\n\n# B"]


def test_definition_that_stands_alone_makes_no_passage_of_its_own() -> None:
    body = "[a]: https://acme.example\n\n# A\n\nOne.\n\n# B\n\nSee [a]."
    assert texts(body) == ["One.", "See [a].\n\n[a]: https://acme.example"]
    assert texts("[a]: https://acme.example\n\n# A\n\nOne.") == ["[a]: https://acme.example\n\nOne."]


def test_heading_with_nothing_under_it_is_a_passage() -> None:
    body = "# A\n\n## Refunds are final\n\n## B\n\nOne.\n\n### Fees are kept"
    assert [(s.path, s.text) for s in split(body)] == [
        ("A", "## Refunds are final"), ("A > B", "One."), ("A > B", "### Fees are kept"),
    ]  # fmt: skip
    assert split("# A\n\n## B") == ()


def test_sentence_above_a_line_of_hyphens_is_a_sentence() -> None:
    body = "# A\n\nRefunds are made within 30 days\nunless disputed.\n---\n\nAsk us."
    assert [(s.path, s.text) for s in split(body)] == [
        ("A", "Refunds are made within 30 days\nunless disputed.\n\nAsk us.")
    ]
    assert paths("Refunds\n---\n\nOne.\n\nFees\n====\n\nTwo.") == ["Refunds", "Fees"]


@pytest.mark.parametrize(
    "block",
    [
        "```\n# no heading\n\n1. No clause.\n2. None.\n```", "~~~\n# no heading\n~~~\n\nOne.",
        "```\n# never closed\n\n1. A.",
        "> # no heading\n>\n> 1. No clause.\n> 2. None.", "- # no heading\n\n  1. No clause.\n  2. None.",
        "<div>\n# no heading\n</div>", "<details>\n\nOne.\n\n</details>", "    # no heading\n\n    1. No clause.",
        "| Days | Rule |\n|---|---|\n| 30 | refunded |\n| 60 | not |\n\nUnless disputed.",
        "1. Fees are\n\n   > kept.\n\n   | a | b |\n   |---|---|\n   | 1 | 2 |\n\nUnless disputed.",
    ],
)  # fmt: skip
def test_block_is_never_cut_inside(block: str) -> None:
    assert texts(f"# A\n\n{block}\n\n# B\n\nTwo.")[0] == block or "never closed" in block
    assert WORD.findall(" ".join(texts(f"# A\n\n{block}")))[: len(WORD.findall(block))] == WORD.findall(block)


def test_title_too_long_for_its_column_stands_in_the_text() -> None:
    long = "A refund " + "of a duplicate payment " * 40 + "is due"
    (found,) = split(f"# {long}\n\n## B\n\nOne.")
    assert (len(found.path), found.path[-1]) == (300, "…")
    assert found.text == f"# {long.strip()}\n\n## B\n\nOne."


# --- what holds of every text --------------------------------------------------------------------------------

PIECES = [
    "# Title", "## Part", "### Detail.", "Part\n---", "A sentence.\n---", "Whole\n====", "Refunds are made.",
    "Only for cards:", "unless disputed.", "Unless the law forbids.", "This section is for cards.",
    "None of the above.", "1. First.\n2. Second.\n3. Third.", "1. first, and\n2. second.",
    "1) One:\n   - inner\n\n   more\n2) Two.", "- a\n- b", "4.1 Numbered.", "(a) lettered", "§ 4 Sections.",
    "> quoted\n> 1. list", "```\n# code\n```", "    indented",
    "| a | b |\n|---|---|\n| 1 | 2 |", "<div>\nhtml\n</div>", "***", "[^1]: Noted.", "[^2]: bare", "See it.[^1]",
    "[link]: https://acme.example", "Read [link].", "\\* Starred.", "Paid.\\*", "\tTabbed.", "#", "1.", "- ",
]  # fmt: skip
ANY = st.text(alphabet=st.sampled_from(list("ab .:;,#*-_>|`~[]()^!<&\\\n\t1290§†é\u0928")), max_size=60)
BODIES = st.lists(st.one_of(st.sampled_from(PIECES), ANY), max_size=12).map("\n\n".join)


@settings(max_examples=150, deadline=None)
@given(BODIES)
def test_every_word_of_a_text_is_in_some_passage(body: str) -> None:
    found = split(body)
    kept = set(WORD.findall("\n".join(f"{s.path}\n{s.text}" for s in found)))
    assert not found or set(WORD.findall(_without_empty_definitions(body))) <= kept


def _without_empty_definitions(body: str) -> str:
    """Definitions of nothing are comments: `[//]: # (…)`."""
    return re.sub(r"(?m)^ {0,3}\[[^\[\]\n]{1,200}\]:[ \t]*\n?[ \t]*(#|<>)(\s.*)?$", "", body)


@settings(max_examples=150, deadline=None)
@given(BODIES)
def test_every_passage_begins_where_a_block_begins(body: str) -> None:
    lines = {line.strip() for line in body.split("\n")}
    begins = {line.strip() for line in _begins(body)}
    for section in split(body):
        first = section.text.split("\n")[0].strip()
        assert first in lines, "it stands in the file"
        assert first in begins, "and begins a block there"


def _begins(body: str) -> set[str]:
    lines = body.split("\n")
    tokens = blocks.PARSER.parse(body)
    covered = {n for t in tokens if t.level == 0 and t.map for n in range(*t.map)}
    begins = {t.map[0] for t in tokens if t.map and t.nesting >= 0} | (set(range(len(lines))) - covered)
    notes = {n for n, line in enumerate(lines) if re.match(r" {0,3}\[\^", line)}
    return {lines[n] for n in begins | notes if n < len(lines)}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("\n\n".join))
def test_no_passage_of_its_own_begins_inside_a_sentence(body: str) -> None:
    for section in split(f"# A\n\nBegun.\n\n{body}"):
        assert not section.text.startswith(("unless", "1. first", "2. second")), "its sentence began before it"


@given(st.permutations(["1. One.", "2. Two.", "3. Three."]))
def test_same_text_is_cut_the_same_way(order: list[str]) -> None:
    body = "\n".join(order)
    assert split(body) == split(body)


# --- bounds --------------------------------------------------------------------------------------------------

LONG, LINES = 200_000, MAX_LINES // 4
HOSTILE = {
    "a line": "a" * LONG, "words": "a " * (LONG // 2), "quotes": "> " * (LONG // 2), "lists": "1. " * (LONG // 3),
    "brackets": "[" * LONG, "links": "[a](" * (LONG // 4), "tags": "<a " + "b='" * (LONG // 3),
    "comments": "<!--" * (LONG // 4), "stars": "*a " * (LONG // 3), "ticks": "`" * LONG, "pipes": "|" * LONG,
    "blanks": " " * LONG + "a", "marks": "¹" * LONG + "x", "digits": "rules " + "1" * LONG,
    "closings": "a" + "\"'*" * (LONG // 3), "nested": "\n".join("  " * depth + "- a" for depth in range(500)),
    "items": "1. This section.\n" * LINES, "scopes": "4.1 This section.\n\n" * (LINES // 2),
    "notes": "".join(f"[^{n}]: a[^{n + 1}]\n\n" for n in range(LINES // 2)), "definitions": "[a]: b\n" * LINES,
    "rows": "|a|\n|-|\n\n" * (LINES // 3), "all": "None of these.\n\n" * (LINES // 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_text_is_cut_in_bounded_time_and_size(kind: str) -> None:
    begun = time.monotonic()
    found = split(HOSTILE[kind])
    assert time.monotonic() - begun < 60, "stuck"
    assert len(found) <= MAX_PASSAGES and sum(len(s.text) for s in found) <= MAX_TEXT


REPEATING = {
    "lines": "a\n" * MAX_LINES, "sections": "# a\n\nb\n" * (MAX_PASSAGES + 1),
    "condition": "# A\n\nOnly for cards " + "a" * 100_000 + ":\n\n" + "## a\n\nb.\n\n" * 1_000,
    "title": "# " + "a" * 100_000 + "\n\n" + "## b\n\nc.\n\n" * 1_000,
    "note": "# a\n\nb[^1].\n\n" * 100 + "[^1]: " + "c" * 100_000,
    "tables": ("|a" * 300 + "|\n" + "|-" * 300 + "|\n" + "|x|\n" * 60 + "\n") * 8,
    "quoted tables": ("> " + "|a" * 300 + "|\n> " + "|-" * 300 + "|\n" + "> |x|\n" * 60 + "\n") * 8,
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(REPEATING))
def test_text_that_would_repeat_without_bound_is_refused(kind: str) -> None:
    with pytest.raises(TooMuchText, match="more than"):
        split(REPEATING[kind])


def test_section_whose_clauses_would_repeat_without_bound_is_left_whole() -> None:
    clauses = "".join(f"4.{n} Clause.\n\n" for n in range(1_000))
    body = f"Only for cards{' and wallets' * 500}.\n\n{clauses}"
    (found,) = texts(f"# A\n\n{body}")
    assert WORD.findall(found) == WORD.findall(body)


def test_every_order_of_two_sections_gives_the_same_passages() -> None:
    parts = ["# A\n\n1. One.\n2. Two.", "# B\n\nThree.", "# C\n\nFour:\n\n- five"]
    found = {frozenset((s.path, s.text) for s in split("\n\n".join(p))) for p in itertools.permutations(parts)}
    assert len(found) == 1
