"""Traffic of a GPU over PCIe and NVLink, if GPM does not tell it.

It comes from counters if the device has them, else from a measurement that the driver makes when
asked. The latter holds up the asking thread for some 20 ms a direction, and sees that time alone.
Counters of PCIe have 32 bits: a link of 16 lanes of generation 4 fills one in 136 ms. So they are
read nine times a second, and the traffic between two readings is left out if a counter may have
wrapped meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from profd.daemon.clock import MILLISECOND_NS, SECOND_NS, Clock
from profd.daemon.gpu.questions import Questions
from profd.daemon.store.records import Point

LOOK_NS = 110 * MILLISECOND_NS
_MEASURED = ("gpu_pcie_sent_bytes_per_s", "gpu_pcie_received_bytes_per_s")
# What sixteen lanes carry at most, in bytes a second, by generation.
_LINK_BYTES_PER_S = {1: 4.0e9, 2: 8.0e9, 3: 15.8e9, 4: 31.5e9, 5: 63.0e9, 6: 126.0e9}


class Traffic:
    """The rates of one GPU; adds up what its counters count."""

    def __init__(self, questions: Questions, clock: Clock) -> None:
        self._questions, self._clock = questions, clock
        self._before: dict[str, tuple[int, int]] = {}
        self._sums: dict[str, tuple[int, int]] = {}
        self._since_ns = clock.now_ns()
        self._has_read = False
        self._fullest: float | None = None

    def look(self) -> bool:
        """Add what the counters counted since the last look; False if there are none."""
        counts = self._questions.ask(self._questions.source.counters)
        now_ns = self._clock.now_ns()
        for name, count in (counts or {}).items():
            before_ns, before = self._before.get(name, (now_ns, count.bytes))
            self._before[name] = now_ns, count.bytes
            counted, is_sure = count.bytes - before, True
            if count.wraps_at is not None:
                counted %= count.wraps_at
                most = (now_ns - before_ns) * self._bytes_per_s() / SECOND_NS
                is_sure = most < count.wraps_at
            if counted >= 0 and is_sure:  # one that was reset says nothing of this time
                time_ns, total = self._sums.get(name, (0, 0))
                self._sums[name] = time_ns + now_ns - before_ns, total + counted
        return bool(counts)

    def read(self, known: Collection[str]) -> Iterator[Point]:
        """Yield the rates that are not ``known`` already.

        None at the first reading that need a counter.
        """
        now_ns, sums = self._clock.now_ns(), self._sums
        whole_ns, self._since_ns, self._sums = now_ns - self._since_ns, now_ns, {}
        was_read, self._has_read = self._has_read, True
        # A sum over less than half of the time says too little.
        enough = {name: one for name, one in sums.items() if one[0] and one[0] >= 0.5 * whole_ns}
        rates = {name: total * SECOND_NS / time_ns for name, (time_ns, total) in enough.items()}
        for name in _MEASURED:
            if name not in rates and name not in known and (was_read or name not in self._before):
                measured = self._questions.ask(self._questions.source.traffic, name)
                rates.update({} if measured is None else {name: measured})
        yield from (
            Point(name, rate, device=self._questions.gpu.name)
            for name, rate in rates.items()
            if name not in known
        )

    def _bytes_per_s(self) -> float:
        """Return the capacity of the link in its best generation: an idle one is put lower."""
        if self._fullest is None:
            best = self._questions.ask(self._questions.source.gauge, "gpu_pcie_generation_most")
            usual = 4
            self._fullest = _LINK_BYTES_PER_S.get(round(best or usual), _LINK_BYTES_PER_S[6])
        return self._fullest
