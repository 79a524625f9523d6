"""When ranks leave the collectives in which they wait for one another, as far as samples tell.

All ranks leave such a wait at nearly the same true moment, wherever they are. Knows one run file at a time, and
compares nothing.
"""

from __future__ import annotations

import bisect
import statistics
from collections import defaultdict
from collections.abc import Iterator

from profd.daemon.analyze.phases import BACKWARD, COLLECTIVE, COPY, PhaseIndex
from profd.daemon.analyze.ranks.waits import WaitIndex
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RecordingRow, ThreadRow

_ONE_SIDED = frozenset(
    {"broadcast", "broadcast_object_list", "reduce", "gather", "gather_object", "scatter", "scatter_object_list",
     "send", "isend", "recv", "irecv", "batch_isend_irecv"}
)  # fmt: skip
"""In these some ranks are done before others have come."""


class DepartureIndex:
    """The ends of a run's waits for all ranks of its job; times are in its own clock."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._phases = PhaseIndex(reader)
        self._waits = WaitIndex(reader, self._phases)
        self._waits_for_all: dict[int, bool] = {}
        self._recordings: defaultdict[int, list[RecordingRow]] = defaultdict(list)
        for row in reader.recordings():
            self._recordings[row.process].append(row)
        self.threads = [row for row in reader.main_threads() if reader.processes[row.process].rank is not None]

    def between(self, from_ns: int, to_ns: int) -> list[int]:
        """Return when one rank left a wait, in order of time: the rank for which most such ends are known.

        The moment lies between the last sample in the wait and the first after it: its middle is taken.
        """
        found = [self._of_thread(thread, from_ns, to_ns) for thread in self.threads]
        return max(found, key=len, default=[])

    def _of_thread(self, thread: ThreadRow, from_ns: int, to_ns: int) -> list[int]:
        return [at_ns - self.half_a_sample(thread, at_ns) for at_ns in self._ends(thread, from_ns, to_ns)]

    def half_a_sample(self, thread: ThreadRow, at_ns: int) -> int:
        """Return half of the distance of two samples of a thread at a time."""
        recordings = self._recordings[thread.process]
        at = bisect.bisect(recordings, at_ns, key=lambda row: row.start_ns) - 1
        return SECOND_NS // (2 * recordings[max(at, 0)].rate_hz) if recordings else 0

    @property
    def slack_ns(self) -> int:
        """By how much all ends may be off together: half of the distance of samples, as it was in the median.

        What is shorter than that distance is only seen where a sample happens to fall, and ends beside its middle.
        """
        rates = [row.rate_hz for thread in self.threads for row in self._recordings[thread.process]]
        return int(SECOND_NS / (2 * statistics.median(rates))) if rates else 0

    def _ends(self, thread: ThreadRow, from_ns: int, to_ns: int) -> Iterator[int]:
        """Yield the starts of the first intervals after each wait."""
        was_waiting, until_ns = False, 0
        for row in self._reader.intervals(from_ns, to_ns, [thread.id]):
            waits = self._is_for_all(row.stack)
            # What follows a gap in the samples may have begun long before.
            if was_waiting and not waits and row.start_ns == until_ns:
                yield row.start_ns
            was_waiting, until_ns = waits, row.start_ns + row.duration_ns

    def _is_for_all(self, stack: int) -> bool:
        known = self._waits_for_all.get(stack)
        if known is None:
            known = self._waits_for_all[stack] = self._decide(stack)
        return known

    def _decide(self, stack: int) -> bool:
        """Say whether whoever leaves a stack may do so when all others do."""
        if not self._waits.may_wait(stack):
            return False
        phase = self._phases.of_stack(stack)
        if self._waits.has_gpu:
            # Kernels are waited for elsewhere than they are launched.
            return phase not in (COPY, BACKWARD)
        return phase != COLLECTIVE or not any(frame.function in _ONE_SIDED for frame in self._reader.frames_of(stack))
