"""What processes have read, written and waited for since they began: two looks at it show whether anything goes on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from profd.daemon import processes

# Heartbeats of loggers and thread pools, and queues that ask every few seconds whether their workers live.
_BYTES_PER_S = 64 << 10
_SWITCHES_PER_S = 5.0
_SPARE_SWITCHES = 3
_CORES = 0.03
_SPARE_CPU_S = 0.03


class Counters(NamedTuple):
    """Of all processes together: bytes read and written, CPU time; of some main threads: how often they waited."""

    io_bytes: int
    switches: int
    cpu_s: float = 0.0

    def moved_since(self, before: Counters, seconds: float, *, steps_are_known: bool) -> bool:
        """Say whether something went on between two looks.

        A loop that polls in short sleeps is not told from one that works by its waits, but by its steps.
        """
        if self.has_read_or_written_since(before, seconds):
            return True
        if self.cpu_s - before.cpu_s > _CORES * seconds + _SPARE_CPU_S:
            return True
        allowed = _SWITCHES_PER_S * seconds + _SPARE_SWITCHES
        return not steps_are_known and self.switches - before.switches > allowed

    def has_read_or_written_since(self, before: Counters, seconds: float) -> bool:
        """Say whether more was read and written between two looks than heartbeats are."""
        return self.io_bytes - before.io_bytes > _BYTES_PER_S * seconds


def read_counters(pids: Iterable[int], main_pids: Iterable[int]) -> Counters:
    """Read the counters of processes; what is gone, or not ours to read, counts nothing."""
    seen = tuple(pids)
    return Counters(sum(map(_io_bytes, seen)), sum(map(_switches, main_pids)), sum(map(_cpu_s, seen)))


def _cpu_s(pid: int) -> float:
    found = processes.read_stat(pid)
    return found.cpu_ticks / processes.CLOCK_TICKS if found else 0.0


def _io_bytes(pid: int) -> int:
    return sum(processes.io_bytes(pid) or ())


def _switches(pid: int) -> int:
    """Return how often the main thread of a process gave up its CPU to wait."""
    return int(processes.status(pid).get("voluntary_ctxt_switches", 0))
