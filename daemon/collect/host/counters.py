"""Counters of the processes of a run: what one line of /proc/PID/stat tells each second, and the rest less often."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from profd.daemon import processes, procfile
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.collect.host.lane import Watched
from profd.daemon.collect.host.rates import Rates
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
        self._knows_delays = procfile.read_number("/proc/sys/kernel/task_delayacct") != 0

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
        counts = (procfile.read(f"/proc/{identity.pid}/schedstat") or b"").split()
        if len(counts) > 1:
            yield from self._rate("main_thread_core_wait_share", identity, int(counts[1]) / SECOND_NS)

    def _io(self, identity: Identity) -> Iterator[Point]:
        total = processes.io_bytes(identity.pid)
        if total is not None:
            yield from self._rate("read_bytes_per_s", identity, total.read)
            yield from self._rate("write_bytes_per_s", identity, total.written)

    def _status(self, identity: Identity) -> Iterator[Point]:
        status = procfile.read_pairs(f"/proc/{identity.pid}/status")
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
