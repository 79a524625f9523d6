"""Counters of the processes of a run: CPU, threads, faults, I/O, and proportional memory.

While it walks the pages of a process it holds a lock that the process needs to map memory: 12 ms a gigabyte of small
pages, measured on one machine. So no process of more than ``LARGEST_BYTES`` is read, readings are paid for out of a
small budget, and a process is the rarer read the dearer it is.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS, Clock
from profd.daemon.machine.machine import Rates
from profd.daemon.machine.pollthread import Watched
from profd.daemon.processes import CLOCK_TICKS, Stat
from profd.daemon.store.records import Identity, Point

_STATES_READ = 10


class QuickCounters:
    """CPU and resident memory of each process, CPU of its main thread: what moves from second to second."""

    interval_s = 1.0

    def __init__(self, clock: Clock) -> None:
        self._rates = Rates(clock)
        self._readings = 0
        self._uninterruptible: Counter[Identity] = Counter()

    def read(self, watched: Watched) -> Iterator[Point]:
        """Yield the points of every process that lives."""
        self._rates.turn()
        self._readings += 1
        tells_states = self._readings % _STATES_READ == 0
        for identity in watched.identities:
            stat = processes.read_running(*identity)
            if stat is None:
                continue
            yield from self._process(identity, stat)
            yield from threads_of(self._rates, identity, watched.threads.get(identity, frozenset()) & {identity.pid})
            if tells_states:
                share = self._uninterruptible[identity] / _STATES_READ
                yield Point("main_thread_uninterruptible_share", share, identity)
        if tells_states:
            self._uninterruptible.clear()

    def _process(self, identity: Identity, stat: Stat) -> Iterator[Point]:
        cores = self._rates.per_s(identity, stat.cpu_ticks / CLOCK_TICKS)
        if cores is not None:
            yield Point("cpu_cores", cores, identity)
        yield Point("rss_bytes", stat.rss_bytes, identity)
        self._uninterruptible[identity] += stat.state == "D"


class SlowCounters:
    """What is worth knowing every few seconds: faults, switches, I/O, files, kinds of memory, CPU of other threads.

    Some of these files wait for a process that is just becoming another program, on a file system that may hang.
    """

    interval_s = 5.0

    def __init__(self, clock: Clock) -> None:
        self._rates = Rates(clock)
        # Where it is switched off, which is usual since Linux 5.14, the kernel says 0.
        self._knows_delays = processes.read_number("/proc/sys/kernel/task_delayacct") != 0

    def read(self, watched: Watched) -> Iterator[Point]:
        """Yield the points of every process that lives."""
        self._rates.turn()
        for identity in watched.identities:
            stat = processes.read_running(*identity)
            if stat is not None:
                yield from self._stat(identity, stat)
                yield from threads_of(
                    self._rates, identity, watched.threads.get(identity, frozenset()) - {identity.pid}
                )
                yield from self._io(identity)
                yield from self._status(identity)
                yield from _open_files(identity)

    def _stat(self, identity: Identity, stat: Stat) -> Iterator[Point]:
        yield Point("threads", stat.threads, identity)
        yield from self._rate("cpu_user_cores", identity, stat.user_ticks / CLOCK_TICKS)
        yield from self._rate("cpu_system_cores", identity, stat.system_ticks / CLOCK_TICKS)
        yield from self._rate("minor_faults_per_s", identity, stat.minor_faults)
        yield from self._rate("major_faults_per_s", identity, stat.major_faults)
        if self._knows_delays and stat.block_delay_ticks is not None:
            yield from self._rate("main_thread_io_wait_share", identity, stat.block_delay_ticks / CLOCK_TICKS)
        yield from self._core_wait(identity)

    def _core_wait(self, identity: Identity) -> Iterator[Point]:
        """Yield for what part of the time the main thread could run and had no core; not every kernel counts that."""
        counts = (processes.read(f"/proc/{identity.pid}/schedstat") or b"").split()
        if len(counts) > 1:
            yield from self._rate("main_thread_core_wait_share", identity, int(counts[1]) / SECOND_NS)

    def _io(self, identity: Identity) -> Iterator[Point]:
        total = processes.io_bytes(identity.pid)
        if total is not None:
            yield from self._rate("read_bytes_per_s", identity, total.read)
            yield from self._rate("write_bytes_per_s", identity, total.written)

    def _status(self, identity: Identity) -> Iterator[Point]:
        status = processes.read_pairs(f"/proc/{identity.pid}/status")
        for name, key in (("rss_file_bytes", b"RssFile"), ("rss_shared_bytes", b"RssShmem"), ("swap_bytes", b"VmSwap")):
            if key in status:
                yield Point(name, status[key] * 1024, identity)
        for name, key in (("voluntary", b"voluntary_ctxt_switches"), ("involuntary", b"nonvoluntary_ctxt_switches")):
            if key in status:
                yield from self._rate(f"main_thread_{name}_switches_per_s", identity, status[key])

    def _rate(self, name: str, identity: Identity, total: float) -> Iterator[Point]:
        value = self._rates.per_s((identity, name), total)
        if value is not None:
            yield Point(name, value, identity)


def threads_of(rates: Rates, identity: Identity, os_tids: frozenset[int]) -> Iterator[Point]:
    """Yield the CPU of threads of a process; those that are gone are left out."""
    for os_tid in os_tids:
        stat = processes.read_stat(identity.pid, os_tid)
        if stat is not None:
            cores = rates.per_s((identity, os_tid), stat.cpu_ticks / CLOCK_TICKS)
            if cores is not None:
                yield Point("cpu_cores", cores, identity, os_tid)


def _open_files(identity: Identity) -> Iterator[Point]:
    folder = f"/proc/{identity.pid}/fd"
    try:
        # Since Linux 6.2 its size is their number; before it is 0, as that of all folders in /proc.
        count = os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116
    except OSError:
        return
    yield Point("open_files", count, identity)


LEAST_INTERVAL_S = 10.0
# Of one core, over all processes.
BUDGET_SHARE = 0.0005
CAPITAL_NS = 20 * MILLISECOND_NS
LARGEST_BYTES = 4 << 30
"""What is resident of a process tells before the first reading how long that can take."""
_MISSING: dict[bytes, int] = {}


class MemoryMaps:
    """Reads the processes of a run in turns."""

    interval_s = 1.0

    def __init__(self, clock: Clock, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        """Account for readings by ``cpu_ns``, the CPU time of the thread that reads."""
        self._clock = clock
        self._cpu_ns = cpu_ns
        self._due_ns: dict[Identity, int] = {}
        self._balance_ns = CAPITAL_NS
        self._earned_to_ns = clock.now_ns()

    def read(self, watched: Watched) -> Iterator[Point]:
        """Yield the points of those that are due, as far as the budget goes."""
        self._due_ns = {identity: self._due_ns.get(identity, 0) for identity in watched.identities}
        for identity in sorted(watched.identities, key=lambda identity: self._due_ns[identity]):
            now_ns = self._clock.now_ns()
            self._earn(now_ns)
            if self._balance_ns <= 0 or now_ns < self._due_ns[identity]:
                return
            self._due_ns[identity] = now_ns + int(LEAST_INTERVAL_S * SECOND_NS)
            yield from self._process(identity)

    def _earn(self, now_ns: int) -> None:
        earned_ns = int((now_ns - self._earned_to_ns) * BUDGET_SHARE)
        self._balance_ns = min(self._balance_ns + earned_ns, CAPITAL_NS)
        self._earned_to_ns = now_ns

    def _process(self, identity: Identity) -> Iterator[Point]:
        before_ns = self._cpu_ns()
        kilobytes = processes.read_pairs(f"/proc/{identity.pid}/smaps_rollup") if _may_be_read(identity) else _MISSING
        self._balance_ns -= self._cpu_ns() - before_ns
        if b"Pss" in kilobytes:
            yield Point("pss_bytes", kilobytes[b"Pss"] * 1024, identity)
            unique = kilobytes.get(b"Private_Clean", 0) + kilobytes.get(b"Private_Dirty", 0)
            yield Point("uss_bytes", (unique + kilobytes.get(b"Private_Hugetlb", 0)) * 1024, identity)


def _may_be_read(identity: Identity) -> bool:
    """Say whether a process is there, and small enough."""
    stat = processes.read_running(*identity)
    return stat is not None and stat.rss_bytes <= LARGEST_BYTES
