"""What was seen of threads in one stretch of time, by stack. Knows neither the stretch nor the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from profd.daemon.store.rows import StackTotal


class Seen:
    """What was seen of a thread: its samples, and the time that they stand for, by stack."""

    __slots__ = ("samples", "time_ns")

    def __init__(self) -> None:
        self.samples: Counter[int] = Counter()
        self.time_ns: Counter[int] = Counter()

    def add(self, total: StackTotal) -> None:
        """Count what was seen in one stack."""
        self.samples[total.stack] += total.samples
        self.time_ns[total.stack] += total.duration_ns

    def update(self, other: Seen, times: int = 1) -> None:
        """Count what another one counted; its time stands for ``times`` as much."""
        self.samples.update(other.samples)
        if times == 1:
            self.time_ns.update(other.time_ns)
            return
        for stack, time_ns in other.time_ns.items():
            self.time_ns[stack] += time_ns * times


class Block:
    """What was seen of each thread in a stretch of time, with the recordings up to ``recording``.

    ``version`` is another one whenever something was added.
    """

    __slots__ = ("__weakref__", "recording", "threads", "version")

    def __init__(self, recording: int = 0) -> None:
        self.recording = recording
        self.threads: dict[int, Seen] = {}
        self.version = 0

    def add(self, totals: Iterable[StackTotal]) -> None:
        """Count what was seen."""
        self.version += 1
        for total in totals:
            self._seen(total.thread).add(total)

    def update(self, other: Block, threads: Collection[int] | None = None, times: int = 1) -> None:
        """Count what another one has of some threads, or of all."""
        self.version += 1
        for thread, seen in other.threads.items():
            if threads is None or thread in threads:
                self._seen(thread).update(seen, times)

    def _seen(self, thread: int) -> Seen:
        seen = self.threads.get(thread)
        if seen is None:
            seen = self.threads[thread] = Seen()
        return seen
