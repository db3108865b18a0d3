"""Server-sent events, read as the bytes come: any split of the same bytes gives the same events. A paper; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE = re.compile(rb"\r\n|\n|\r")
BOM = b"\xef\xbb\xbf"


class Events:
    """Fed with chunks, it yields the data of each whole event. Bytes that are no UTF-8 become lone surrogates."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[str] = []
        self._first = True
        self._looked = 0  # so far no line ends: a line of megabytes in small pieces is looked through once

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Data of the events that these bytes completed."""
        self._rest += chunk
        for line in self._lines():
            yield from self._line(line)

    def close(self) -> Iterator[str]:
        """At the end of the bytes: an event whose lines are whole but that no blank line closed."""
        if self._rest.endswith(b"\r"):
            yield from self._line(bytes(self._rest[:-1]))
            self._rest.clear()
        if self._data and not self._rest:
            yield from self._line(b"")

    def _lines(self) -> Iterator[bytes]:
        start, at = 0, self._looked
        while found := _LINE.search(self._rest, at):
            if found.group() == b"\r" and found.end() == len(self._rest):
                break  # the other half of a line end may be on its way
            line = bytes(self._rest[start : found.start()])
            start = at = found.end()
            yield line
        del self._rest[:start]
        self._looked = len(self._rest) - self._rest.endswith(b"\r")

    def _line(self, line: bytes) -> Iterator[str]:
        if self._first:
            self._first, line = False, line.removeprefix(BOM)
        if not line:
            data, self._data = self._data, []
            if data:
                yield "\n".join(data)
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "surrogateescape"))
