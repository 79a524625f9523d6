"""Says how much memory was taken and given back in a span of time, as torch does: by whichever thread."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from profd.daemon.windows.spans import HostSpan, MemoryChange


class Memory(NamedTuple):
    """Bytes taken less bytes given back."""

    host_bytes: int
    device_bytes: int


class MemoryLedger:
    """All changes of memory of a trace, in order of time."""

    def __init__(self, changes: Sequence[MemoryChange]) -> None:
        self._changes = changes
        self._times = [change.at_ns for change in changes]
        self._host = [0, *accumulate(change.host_bytes for change in changes)]
        self._device = [0, *accumulate(change.device_bytes for change in changes)]

    def __bool__(self) -> bool:
        return bool(self._times)

    def within(self, span: HostSpan) -> Memory:
        """Return what changed from the start of a span to its end, both included."""
        first, after = self._range(span)
        return Memory(self._host[after] - self._host[first], self._device[after] - self._device[first])

    def outside(self, spans: Iterable[HostSpan]) -> list[MemoryChange]:
        """Return the changes that happened in none of the spans."""
        if not self._times:
            return []
        edges = [0] * (len(self._times) + 1)
        for span in spans:
            first, after = self._range(span)
            edges[first] += 1
            edges[after] -= 1
        return [change for change, covers in zip(self._changes, accumulate(edges), strict=False) if not covers]

    def _range(self, span: HostSpan) -> tuple[int, int]:
        return bisect_left(self._times, span.start_ns), bisect_right(self._times, span.end_ns)
