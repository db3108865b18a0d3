"""Ranks passages for a question by their words, in an index on disk or in memory. Knows no Django and no rows.

A question is a bag of words: no character of it is ever an instruction to the search engine.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tantivy import (
    Document,
    Filter,
    Index,
    Occur,
    Query,
    Schema,
    SchemaBuilder,
    TextAnalyzer,
    TextAnalyzerBuilder,
    Tokenizer,
)

MAX_QUERY = 16_384
# What is said most often is what is asked; a long message's rarer words add little and cost time each.
MAX_TERMS = 100
# A word said n times counts n * (REPEATED + 1) / (n + REPEATED): more than once said, never more than nine times.
REPEATED = 8
# A word of the title says what the whole document is about; BM25 sees the title as often as this.
TITLE_TIMES = 3
LONGEST_BYTES = 160  # of a word that is indexed: 40 letters of any script
HEAP_BYTES = 128_000_000
# The closed classes of English: they stand in every question and every text and say nothing about what is asked.
# A question of such words alone matches nothing.
STOP = re.findall(
    r"\w+",
    """
    a an the this that these those each every either neither both all any some such no none one another other others
    else same own i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself
    she her hers herself it its itself they them their theirs themselves anyone anybody anything everyone everybody
    everything someone somebody something nobody nothing who whom whose which what whatever whoever
    am is are was were be been being do does did doing done have has had having can could may might must shall should
    will would ought
    about above across after against along among around at before behind below beneath beside between beyond by down
    during except for from in inside into like near of off on onto out outside over per since through throughout till
    to toward towards under until up upon via with within without
    and but or nor so yet if then than because as although though while unless whether when whenever where wherever
    why how however not very too also only just even still already again ever never here there now quite rather really
    s t d m ll re ve don doesn didn isn aren wasn weren won wouldn couldn shouldn hasn haven hadn
    please yes ok let
    """,
)
# Scripts that put no space between words: there each letter is a word.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
# Marks that stand above and below a letter. More of them in a row than any writing has are cut short: to put a million
# into their order takes hours (Unicode's own bound for such rows, UAX 15, is thirty).
MARK = "".join(
    mark for mark in map(chr, range(0x300, 0x20000)) if unicodedata.combining(unicodedata.normalize("NFKD", mark)[0])
)
MARKS = re.compile(f"([{MARK}]{{30}})[{MARK}]+")
HIDDEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


def analyser(stop: list[str]) -> TextAnalyzer:
    """Text to words: small letters, no accents, English endings cut off, these words left out."""
    words = TextAnalyzerBuilder(Tokenizer.regex(rf"[{UNSPACED}]|[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]+"))
    words = words.filter(Filter.remove_long(LONGEST_BYTES)).filter(Filter.lowercase()).filter(Filter.ascii_fold())
    return words.filter(Filter.custom_stopword(stop)).filter(Filter.stemmer("english")).build()


ANALYSER = analyser(STOP)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A passage to be found: its number (64 bits, no sign), its document's title, the titles above it, its text."""

    key: int
    title: str
    section: str
    text: str


def build(path: Path, entries: Iterable[Entry]) -> None:
    """Writes an index of these entries into a directory, which is made where it is missing and must be empty."""
    path.mkdir(parents=True, exist_ok=True)
    _fill(Index(_schema(), path=str(path), reuse=False, sort_by_field="key"), entries)


def in_memory(entries: Iterable[Entry]) -> Ranker:
    """An index of these entries that lives as long as the value returned."""
    index = Index(_schema(), sort_by_field="key")
    _fill(index, entries)
    return Ranker(index)


def open_index(path: Path) -> Ranker:
    """The index that `build` left here. Raises ValueError where there is none, or a broken one."""
    index = Index.open(str(path))
    index.register_tokenizer("words", ANALYSER)
    return Ranker(index)


class Ranker:
    """An open index; to be opened in the process that asks it, after any fork."""

    def __init__(self, index: Index) -> None:
        index.reload()
        self._schema = index.schema
        self._searcher = index.searcher()

    def search(self, text: str, limit: int) -> list[tuple[int, float]]:
        """The best `limit` entries as (key, score), best first, equal scores by key; the same on every call."""
        wanted = Counter(ANALYSER.analyze(_plain(text[:MAX_QUERY]))).most_common(MAX_TERMS)
        if not wanted or limit < 1:
            return []
        query = Query.boolean_query([(Occur.Should, self._term(word, times)) for word, times in wanted])
        return self._best(query, limit)

    def _term(self, word: str, times: int) -> Query:
        return Query.boost_query(
            Query.term_query(self._schema, "text", word, "freq"), times * (REPEATED + 1) / (times + REPEATED)
        )

    def _best(self, query: Query, limit: int) -> list[tuple[int, float]]:
        """Equal scores come in the order of storage, which is by key within a segment. Where an index has several, hits
        beyond the limit are looked at as long as they tie with the last one within it."""
        ask = limit
        while True:
            hits = self._searcher.search(query, limit=ask, count=False).hits
            if self._searcher.num_segments == 1 or len(hits) < ask or hits[-1][0] < hits[limit - 1][0]:
                break
            ask *= 4
        keys = self._searcher.fast_field_values("key", [address for _, address in hits])
        scored = [(int(key or 0), float(hit[0])) for key, hit in zip(keys, hits, strict=True)]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:limit]


def _schema() -> Schema:
    builder = SchemaBuilder()
    builder.add_unsigned_field("key", fast=True)
    builder.add_text_field("text", tokenizer_name="words", index_option="freq")
    return builder.build()


def _fill(index: Index, entries: Iterable[Entry]) -> None:
    index.register_tokenizer("words", ANALYSER)
    writer = index.writer(HEAP_BYTES, num_threads=1)
    for entry in entries:
        document = Document()
        document.add_unsigned("key", entry.key)
        document.add_text("text", _plain("\n".join([*[entry.title] * TITLE_TIMES, entry.section, entry.text])))
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()


def _plain(text: str) -> str:
    """One spelling of what looks the same: compatibility forms composed, hidden characters and lone surrogates gone."""
    spelt = unicodedata.normalize("NFKC", MARKS.sub(r"\1", text.encode("utf-8", "ignore").decode("utf-8")))
    return HIDDEN.sub("", spelt)
