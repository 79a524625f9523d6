"""In which stacks a rank waits for the others, and when it leaves them.

All ranks leave such a wait at nearly the same true moment, on all nodes.

A wait inside backward has no frame of its own: autograd and the reducer of DistributedDataParallel
run there in C++, so computing and waiting look alike. On a GPU a thread that asks for a value waits
for its kernels, and so for those that exchange data.
"""

from __future__ import annotations

import bisect
import functools
import statistics
from collections import defaultdict

from profd.daemon.analyze.phases import BACKWARD, COLLECTIVE, COPY, SYNCHRONIZE, PhaseIndex
from profd.daemon.clock import SECOND_NS
from profd.daemon.frameworks.frames import any_means, means
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RecordingRow, ThreadRow
from profd.daemon.timerange import TimeRange


class WaitIndex:
    """Which stacks of a run are a rank's own work, and which may be waits for others."""

    def __init__(self, reader: RunReader, phases: PhaseIndex) -> None:
        self._reader, self._phases = reader, phases
        self.has_gpu = bool(reader.devices())
        self.may_wait = functools.cache(self._may_wait)

    def _may_wait(self, stack: int) -> bool:
        """Say whether a rank may wait for others in a stack; all other stacks are its own work."""
        phase = self._phases.of_stack(stack)
        if phase != BACKWARD:
            return phase == COLLECTIVE or (self.has_gpu and phase in (SYNCHRONIZE, COPY))
        # It waits in autograd itself, not in Python that autograd calls.
        frames = self._reader.frames_of(stack)
        return means(frames[-1], "autograd") or not any_means(frames, "autograd")


def exchange(reader: RunReader) -> bool:
    """Say whether the processes of a run are ranks that exchange data: others never wait."""
    return any_means(reader.frames.values(), "of a rank")


class DepartureIndex:
    """The ends of a run's waits for all ranks of its job; times are in its own clock."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._phases = PhaseIndex(reader)
        self._waits = WaitIndex(reader, self._phases)
        self._waits_for_all = functools.cache(self._is_for_all)
        self._recordings: defaultdict[int, list[RecordingRow]] = defaultdict(list)
        for row in reader.recordings():
            self._recordings[row.process].append(row)
        self.threads = [
            row for row in reader.main_threads() if reader.processes[row.process].rank is not None
        ]

    def during(self, time: TimeRange) -> list[int]:
        """Return when one rank left waits, in order of time: the rank with the most known ends.

        A moment is the middle between the last sample in a wait and the first after it.
        """
        most: list[int] = []
        for thread in self.threads:
            found, was_waiting, until_ns = [], False, 0
            for row in self._reader.intervals(time, [thread.id]):
                waits = self._waits_for_all(row.stack)
                # What follows a gap in the samples may have begun long before.
                if was_waiting and not waits and row.start_ns == until_ns:
                    found.append(row.start_ns - self.half_a_sample(thread, row.start_ns))
                was_waiting, until_ns = waits, row.end_ns
            most = max(most, found, key=len)
        return most

    def half_a_sample(self, thread: ThreadRow, at_ns: int) -> int:
        recordings = self._recordings[thread.process]
        at = bisect.bisect(recordings, at_ns, key=lambda row: row.start_ns) - 1
        return SECOND_NS // (2 * recordings[max(at, 0)].rate_hz) if recordings else 0

    @property
    def slack_ns(self) -> int:
        """By how much all ends may be off together: half the median distance of samples.

        A wait shorter than that distance is only seen if a sample happens to fall into it, and does
        not end in its middle.
        """
        rates = [row.rate_hz for thread in self.threads for row in self._recordings[thread.process]]
        return int(SECOND_NS / (2 * statistics.median(rates))) if rates else 0

    def _is_for_all(self, stack: int) -> bool:
        phase = self._phases.of_stack(stack)
        if not self._waits.may_wait(stack):
            return False
        if self._waits.has_gpu:  # kernels are waited for elsewhere than they are launched
            return phase not in (COPY, BACKWARD)
        # Some ranks leave a one-sided function before others have come.
        return phase != COLLECTIVE or not any_means(self._reader.frames_of(stack), "one-sided")
