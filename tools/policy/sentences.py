"""Tells by its words where a text stops short, leans on what stands before it, or speaks of what follows it.

Pure text in, truth out; imports nothing of ours. In doubt the answer is the one that keeps texts together: a passage
too long costs a little room, a clause without its condition costs money. Words are English; in any language a text
that does not end as a sentence ends, or begins with a small letter, is taken for a part of a sentence.
"""

from __future__ import annotations

import re

MARKUP = "*_~`"
CLOSING = MARKUP + "\"'”’»)]}>"
ENDS = frozenset(".!?…。．！？｡।॥؟۔։።")
NUMBER = (
    r"(?:\(?\d{1,3}\\?[.)]|\(?\d{1,3}(?:\.\d{1,3})+\\?[.)]?|§+\s?\d[\d.]*|\(?[a-z]\)|\([ivx]{1,5}\)"
    r"|(?:Clause|Section|Article)\s\d[\d.]*:?)"
)
NUMBERED = re.compile(rf"(?:\*\*|__)?{NUMBER}(?:\*\*|__)?\s", re.I)
REFERENCE = re.compile(r"(?:\[\^[^\]\s]{1,60}\]|<sup>[^<]{1,8}</sup>|[¹²³⁴⁵⁶⁷⁸⁹⁰†‡]|\\?\*)+$")
TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>$")
JOINS = re.compile(
    r"(?:[:;,–—-]|\b(?:and|or|nor|but|if|unless|except|where|when|while|until|that|which|who|than|provided|for|to"
    r"|of|by|in|on|at|from|with|without|the|is|are|be|not|all|any|each|either|both|after|before|within|because))$",
    re.I,
)
LEANS = re.compile(
    r"(?:unless|except|excepting|excluding|including|however|but|and|or|nor|provided|otherwise|nevertheless|yet|still"
    r"|notwithstanding|instead|then|also|likewise|similarly|additionally|furthermore|moreover|therefore|thus|hence|it"
    r"|its|they|their|them|this|that|these|those|such|he|she|both|neither|either|none|same|the same|the (?:above|latter"
    r"|former)|as (?:above|well)|if (?:so|not)|in (?:that|this|such|these|those|all|any|either|each|every)|with the"
    r" exception|only|even|save|subject to|for this|for these|for that|where this|when this)\b",
    re.I,
)
THINGS = r"(?:rules?|clauses?|conditions?|points?|items?|cases?|terms?|paragraphs?|sections?|refunds?|list)"
BACK = re.compile(
    r"\b(?:foregoing|preceding|aforementioned|aforesaid|(?:the|as|all|any|nothing|anything|everything|none|"
    + THINGS
    + r") above|above[- ](?:mentioned|named|is|are|does|do|applies|apply|"
    + THINGS
    + r")|previous "
    + THINGS
    + r"|(?:none|all|any|each|both|either|neither) of (?:the|these|those)|(?:rules|clauses|conditions|points|items"
    r"|paragraphs) \(?[\da-z][\d.]*\)? ?(?:to|and|or|through|[-–—&,]))\b",
    re.I,
)
PLURAL = re.compile(r"(?:these|those|all of|none of|both|neither|either|any of|each of|such)\b", re.I)
SCOPE = re.compile(
    r"\b(?:this (?:section|policy|document|chapter|part|page|article|agreement|schedule|list|table)|following "
    + THINGS
    + r"|(?:the|as|all|any|nothing|anything|everything|none|"
    + THINGS
    + r") below|here(?:in|of|under|after)"
    r"|otherwise (?:stated|specified|noted|agreed))\b",
    re.I,
)
CONDITION = re.compile(
    r"\b(?:unless|except|excluded?|excluding|excludes|provided that|appl(?:y|ies)|subject to|only (?:for|to|in|on|at"
    r"|by|if|where|when|while|within|before|after|with|from)|only[.:;])(?!\w)",
    re.I,
)
SEEN = 400
"""Characters at an end of a text that tell how it begins or ends."""


def unfinished(text: str) -> bool:
    """Whether a paragraph's or clause's last sentence has no end, so that what follows is the rest of it."""
    return _bare_end(text)[-1:] not in ENDS


def joins(text: str) -> bool:
    """Whether a text stops short beyond doubt: at a colon, a comma, or a word that calls for another."""
    return bool(JOINS.search(_bare_end(text)))


def leans_back(text: str) -> bool:
    """Whether a text is the rest of what stands before it: it begins small, or with a word that refers to it."""
    return begins_small(text) or bool(LEANS.match(unnumbered(text)))


def begins_small(text: str) -> bool:
    """Whether a text begins with a small letter, as no sentence does."""
    return unnumbered(text)[:1].islower()


def speaks_of_all_before(text: str) -> bool:
    """Whether it qualifies more than the one clause before it."""
    return bool(PLURAL.match(unnumbered(text)) or BACK.search(text))


def speaks_of_its_section(text: str) -> bool:
    """Whether it says something of all that stands beside it or after it."""
    return bool(SCOPE.search(text))


def conditions(text: str) -> bool:
    """Whether what stands under the same heading may be subject to it."""
    return speaks_of_its_section(text) or bool(CONDITION.search(text))


def unnumbered(text: str) -> str:
    """The beginning of a text without its number and markup."""
    begin = text[:SEEN].lstrip().lstrip("> ")
    found = NUMBERED.match(begin)
    return (begin[found.end() :] if found else begin).lstrip(" \t\n*_~`\"'“‘«([>-+")


def _bare_end(text: str) -> str:
    end = text[-SEEN:].rstrip()
    while True:
        shorter = TAG.sub("", REFERENCE.sub("", end)).rstrip().rstrip(CLOSING).rstrip()
        if shorter == end:
            return end
        end = shorter
