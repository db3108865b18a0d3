"""Roof: what a gauge is called, what it says and by what it is split. A paper of the metrics; imports no room.

A family is declared beside the code that reads it, and stands in every scrape, with or without a sample: an alert may
name it from the first day on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily

from agentsite.text import visible
from runs.measures import numbers

PREFIX = "agentsite_"
MOST = 5_000
"""Rows that are looked at one by one, at most: beyond it a count says `at least`, and `scrape_bounded` says so."""

LONGEST_LABEL = 200
QUANTILES = {"0.5": 50, "0.95": 95, "0.99": 99}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One value of a family, for these values of its labels."""

    family: str
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, kw_only=True)
class Family:
    """A gauge: its name without our prefix, a sentence, the names of its labels."""

    name: str
    words: str
    labels: tuple[str, ...] = ()

    def at(self, value: float, *labels: str) -> Sample:
        """A sample with a value for each label."""
        assert len(labels) == len(self.labels), self.name
        shown = tuple(visible(label)[:LONGEST_LABEL] for label in labels)  # no row may spoil the whole scrape
        return Sample(family=self.name, labels=shown, value=float(value))

    def each(self, counted: Mapping[str, float]) -> Iterator[Sample]:
        """A sample for each value of the one label."""
        for key, value in sorted(counted.items()):
            yield self.at(value, key)

    def text(self, samples: Iterable[Sample]) -> GaugeMetricFamily:
        """The family with those of the samples that are its own."""
        found = GaugeMetricFamily(PREFIX + self.name, self.words, labels=self.labels)
        for sample in samples:
            if sample.family == self.name:
                found.add_metric(sample.labels, sample.value)
        return found


BOUNDED = Family(
    name="scrape_bounded", labels=("part",),
    words="1 where there are more rows than are looked at, so that this part's counts mean `at least`",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Part:
    """One reader and the families it fills. It is given the database's time; `outside` ones need no database."""

    name: str
    families: tuple[Family, ...]
    read: Callable[[datetime], Iterable[Sample]]
    outside: bool = False


def among(values: Iterable[str]) -> str:
    """Values of ours as they stand in a statement: SQLite finds no partial index by a parameter."""
    return ", ".join(f"'{value}'" for value in values)


def age(at: datetime | None, now: datetime) -> float:
    """Seconds since then, 0 where it is no time or lies ahead."""
    return max(0.0, (now - at).total_seconds()) if at is not None else 0.0


def quantiles(values: Iterable[float]) -> dict[str, float]:
    """The least values that half, 95 and 99 in a hundred do not pass; nothing where there are none."""
    ordered = sorted(values)
    found = {name: numbers.percentile(ordered, percent) for name, percent in QUANTILES.items()}
    return {name: value for name, value in found.items() if value is not None}
