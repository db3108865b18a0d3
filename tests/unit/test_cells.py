"""No text of a customer, provider or model is a formula in a spreadsheet."""

from __future__ import annotations

import pytest

from agentsite.text import cell

FORMULAS = (
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\tplain", "\rplain", " =1", "\u00a0=1", '"=1', "'=1",
    "\u2018=1", "\u200b=1", "\ufeff=1", "\u202e=1", " \"' =1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20A", "\u22121",
    "=HYPERLINK(\"https://evil.example\",\"x\")", "=cmd|' /C calc'!A0", "\x00=1",
)  # fmt: skip
PLAIN = ("", "8472", "a=1", "pay_9002", "2026-11-30T10:00:00.000Z", "ok\n=1", "'quoted'", " spaced", "₹ 2,000", "a-b")


@pytest.mark.parametrize("text", FORMULAS)
def test_formula_gets_an_apostrophe(text: str) -> None:
    assert cell(text) == "'" + text


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert cell(text) == text
