"""Checks runs in the database with what logs outside knew of them. Part of `runs.audit`; writes nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from runs.audit import rows
from runs.audit.chain import check
from runs.audit.links import Keys, payload_state
from runs.audit.logs import Line, Logs
from runs.audit.values import Fault, Head, Link, Named, Verdict
from runs.models import Run

MAX_FAULTS = 100
END = "~"
"""After every id."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which runs: all, those of a tenant, those named; from the one after `after` on, in the order of their ids.

    A run that only a log knows is missed where all are asked for, or where its id is named.
    """

    run_ids: tuple[uuid.UUID, ...] = ()
    tenant_id: str | None = None
    after: uuid.UUID | None = None


Archives = Callable[[Head], Mapping[int, tuple[str, str]]]
"""(canonical payload, salt) of a run's archived events by their numbers. Raises BadArchived where its file does not
serve."""


class BadArchived(ValueError):
    """An archive does not hold what the note of a run says; the words say what is wrong."""


def verify(asked: Asked, keys: Keys, logs: Logs, archives: Archives | None = None) -> Verdict:
    """Check the runs that are asked for. The logs were read before: what they know of was committed before.

    With `archives` the payloads of archived events are checked, too.
    """
    audit = Audit(keys, logs, archives)
    if asked.run_ids:
        _named(audit, asked)
    else:
        _all(audit, asked)
    return audit.verdict


class Audit:
    """Checks run after run and keeps count."""

    def __init__(self, keys: Keys, logs: Logs, archives: Archives | None = None) -> None:
        self._keys, self.logs, self._archives = keys, logs, archives
        self.verdict = Verdict(lines=logs.lines, unread=logs.unread, logs=logs.paths)

    def run(self, head: Head, links: Sequence[Link], lines: Sequence[Line]) -> None:
        """Check one run with what the logs know of it."""
        links, misfit = self._with_archive(head, links)
        done, sum_ = check(head, links, self._keys, lines, self.logs.fenced_at), self.verdict
        sum_.runs, sum_.events, sum_.last = sum_.runs + 1, sum_.events + len(links), head.run_id
        sum_.erased, sum_.unspanned = sum_.erased + done.erased, sum_.unspanned + done.unspanned
        sum_.archived, sum_.put_back = sum_.archived + done.archived, sum_.put_back + done.put_back
        sum_.known, sum_.unknown = sum_.known + bool(lines), sum_.unknown + (not lines)
        fault = done.fault or misfit
        if fault is not None:
            self._fault(fault.of(head.run_id, head.request_id))

    def _with_archive(self, head: Head, links: Sequence[Link]) -> tuple[Sequence[Link], Named | None]:
        """The links, with what became of the payloads that lie in an archive; or why it does not serve."""
        if head.archive is None or self._archives is None:
            return links, None
        try:
            return self._read_back(links, self._archives(head)), None
        except BadArchived as bad:
            return links, Named(seq=1, type=None, kind="archive not whole", why=str(bad))

    def _read_back(self, links: Sequence[Link], known: Mapping[int, tuple[str, str]]) -> list[Link]:
        found = [
            link._replace(payload=payload_state(*known[link.seq], link.digest))
            if link.payload == "gone" and link.seq in known else link
            for link in links
        ]  # fmt: skip
        looked_at = sum(new.payload != old.payload for new, old in zip(found, links, strict=True))
        self.verdict.archived += looked_at
        self.verdict.read_back += looked_at
        return found

    def missing(self, run_id: str, lines: Sequence[Line]) -> None:
        """A run that a log knows and the database does not."""
        late = [line for line in lines if line.at >= self.logs.fenced_at]
        self.verdict.put_back += len(lines) - len(late)
        if late:
            why = f"a log of {late[-1].at} knows its row of place {late[-1].seq}"
            self._fault(Named(seq=1, type=None, kind="run removed", why=why).of(run_id, ""))

    def _fault(self, fault: Fault) -> None:
        self.verdict.faulty += 1
        if len(self.verdict.faults) < MAX_FAULTS:
            self.verdict.faults.append(fault)


def _named(audit: Audit, asked: Asked) -> None:
    for run_id in asked.run_ids:
        found = list(rows.read(_of(asked).filter(id=run_id)))
        lines = audit.logs.of(str(run_id))
        for head, links in found:
            audit.run(head, links, lines)
        if not found:
            audit.missing(str(run_id), lines)


def _all(audit: Audit, asked: Asked) -> None:
    known = _Known(audit, asked)
    for upto, batch in rows.batches(_of(asked), asked.after):
        known.upto(str(upto))
        for head, links in rows.read(batch):
            audit.run(head, links, known.lines(head.run_id))
        known.rest()
    known.upto(END)
    known.rest()


def _of(asked: Asked) -> QuerySet[Run]:
    return Run.objects.all() if asked.tenant_id is None else Run.objects.filter(tenant_id=asked.tenant_id)


class _Known:
    """Walks the logs' runs beside the database's, both by id; what stands in the logs alone is missing."""

    def __init__(self, audit: Audit, asked: Asked) -> None:
        self._audit, self._after = audit, str(asked.after or "")
        # A log names no tenant: one tenant's runs that are gone cannot be told from another one's that are there.
        self._tells_missing = asked.tenant_id is None
        self._runs: Iterator[tuple[str, list[Line]]] = iter(())
        self._next: tuple[str, list[Line]] | None = None

    def upto(self, run_id: str) -> None:
        self._runs = self._audit.logs.between(self._after, run_id)
        self._after, self._next = run_id, next(self._runs, None)

    def lines(self, run_id: str) -> list[Line]:
        while self._next is not None and self._next[0] < run_id:
            self._skip()
        if self._next is None or self._next[0] != run_id:
            return []
        lines, self._next = self._next[1], next(self._runs, None)
        return lines

    def rest(self) -> None:
        while self._next is not None:
            self._skip()

    def _skip(self) -> None:
        assert self._next is not None
        if self._tells_missing:
            self._audit.missing(*self._next)
        self._next = next(self._runs, None)
