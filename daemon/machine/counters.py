"""Counters of the processes of a run: CPU, threads, faults, I/O, and proportional memory."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterator

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS, SECOND_NS, Clock
from profd.daemon.machine.machine import Rated, Rates, Watched
from profd.daemon.processes import CLOCK_TICKS, Stat
from profd.daemon.store.records import Identity, Point

MOST_THREADS = 256
"""If a process has more threads, those that have computed most are read.

Each costs 50 µs, and a row for each reading.
"""


class QuickCounters(Rated):
    """CPU and resident memory of each process, and CPU of its leading thread.

    These change from second to second.
    """

    interval_s = 1.0

    def read(self, watched: Watched) -> Iterator[Point]:
        self._rates.turn()
        for identity in watched.identities:
            stat = processes.read_running(*identity)
            if stat is None:
                continue
            yield from self._rates.points("cpu_cores", stat.cpu_s, identity)
            if stat.rss_bytes:  # a process at its end has given its memory back already
                yield Point("rss_bytes", stat.rss_bytes, identity)
            leader = watched.threads.get(identity, frozenset()) & {watched.leader(identity)}
            yield from _threads(self._rates, identity, leader)


class SlowCounters(Rated):
    """Faults, switches, I/O, files, kinds of memory, CPU of other threads.

    Some of these files wait for a process that is executing another program, from a file system
    that may hang.
    """

    interval_s = 5.0

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._busiest: dict[Identity, frozenset[int]] = {}
        self._readings = 0

    def read(self, watched: Watched) -> Iterator[Point]:
        self._rates.turn()
        if self._readings % 12 == 0:  # choose the threads anew
            self._busiest.clear()
        self._readings += 1
        for identity in watched.identities:
            stat = processes.read_running(*identity)
            if stat is not None:
                leader = watched.leader(identity)
                threads = watched.threads.get(identity, frozenset()) - {leader}
                if len(threads) > MOST_THREADS:
                    threads &= self._busiest.get(identity) or self._choose(identity, threads)
                yield from _threads(self._rates, identity, threads)
                yield from self._process(identity, stat)
                yield from self._leading_thread(identity, leader)

    def _choose(self, identity: Identity, os_tids: frozenset[int]) -> frozenset[int]:
        stats = {os_tid: processes.read_stat(identity.pid, os_tid) for os_tid in os_tids}
        ticks = {os_tid: stat.cpu_ticks for os_tid, stat in stats.items() if stat is not None}
        chosen = frozenset(heapq.nlargest(MOST_THREADS, ticks, key=ticks.__getitem__))
        self._busiest[identity] = chosen
        return chosen

    def _process(self, identity: Identity, stat: Stat) -> Iterator[Point]:
        pid, rates = identity.pid, self._rates
        yield Point("threads", stat.threads, identity)
        yield from rates.points("cpu_user_cores", stat.user_ticks / CLOCK_TICKS, identity)
        yield from rates.points("cpu_system_cores", stat.system_ticks / CLOCK_TICKS, identity)
        yield from rates.points("minor_faults_per_s", stat.minor_faults, identity)
        yield from rates.points("major_faults_per_s", stat.major_faults, identity)
        counts = processes.read_pairs(f"/proc/{pid}/status")
        counts |= processes.read_pairs(f"/proc/{pid}/io")
        for name, key in (
            ("rss_file_bytes", b"RssFile"),
            ("rss_shared_bytes", b"RssShmem"),
            ("swap_bytes", b"VmSwap"),
        ):
            if key in counts:
                yield Point(name, counts[key] * 1024, identity)
        for name, key in (
            ("read_bytes_per_s", b"rchar"),
            ("write_bytes_per_s", b"wchar"),
        ):
            if key in counts:
                yield from rates.points(name, counts[key], identity)
        try:
            # Since Linux 6.2 the size of the folder is the number of files; before it is 0, as of
            # all folders in /proc.
            folder = f"/proc/{pid}/fd"
            files = os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116
        except OSError:
            return
        yield Point("open_files", files, identity)

    def _leading_thread(self, identity: Identity, leader: int) -> Iterator[Point]:
        """Yield what is read of the leading thread, if that was the same one at the last reading.

        Its series have the names of the main thread's, whichever it is.
        """
        # For how long it could run and had no core; not every kernel counts that.
        times = processes.read_text(f"/proc/{identity.pid}/task/{leader}/schedstat").split()
        totals = {"core_wait_share": int(times[1]) / SECOND_NS} if len(times) > 1 else {}
        counts = processes.read_pairs(f"/proc/{identity.pid}/task/{leader}/status")
        if counts:
            totals["voluntary_switches_per_s"] = counts.get(b"voluntary_ctxt_switches", 0)
            totals["involuntary_switches_per_s"] = counts.get(b"nonvoluntary_ctxt_switches", 0)
        for name, total in totals.items():
            for point in self._rates.points(f"main_thread_{name}", total, identity, leader):
                yield Point(point.name, point.value, identity)


def _threads(rates: Rates, identity: Identity, os_tids: frozenset[int]) -> Iterator[Point]:
    for os_tid in os_tids:
        stat = processes.read_stat(identity.pid, os_tid)
        if stat is not None:
            yield from rates.points("cpu_cores", stat.cpu_s, identity, os_tid)


CAPITAL_NS = 100 * MILLISECOND_NS
LARGEST_BYTES = 4 << 30


class MemoryMaps:
    """Proportional and unique memory of the processes, in turns.

    While the kernel walks the pages of a process it holds a lock that the process needs to map
    memory: 12 ms a gigabyte of small pages, measured on one machine. So processes above
    ``LARGEST_BYTES`` of resident memory are not read, and a small budget of CPU time pays for the
    readings: a process that takes longer is read less often. None is read while it starts. A second
    reading comes soon, and before the first one of another process: only two tell what grows. The
    next pair can wait.
    """

    interval_s = 1.0

    def __init__(self, clock: Clock, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self._clock, self._cpu_ns = clock, cpu_ns
        self._due: dict[Identity, tuple[int, int]] = {}
        self._balance_ns = CAPITAL_NS
        self._earned_to_ns = clock.now_ns()

    def read(self, watched: Watched) -> Iterator[Point]:
        now_ns = self._clock.now_ns()
        known, first = self._due, (1, now_ns + 10 * SECOND_NS)
        self._due = {identity: known.get(identity, first) for identity in watched.identities}
        for identity in sorted(watched.identities, key=self._due.__getitem__):
            # This share of one core, over all processes.
            earned_ns = int((now_ns - self._earned_to_ns) * 0.0005)
            self._balance_ns = min(self._balance_ns + earned_ns, CAPITAL_NS)
            self._earned_to_ns = now_ns
            rank, due_ns = self._due[identity]
            if self._balance_ns <= 0 or now_ns < due_ns:
                return
            self._due[identity] = (1 - rank, now_ns + (10 if rank else 30) * SECOND_NS)
            before_ns, kilobytes = self._cpu_ns(), dict[bytes, int]()
            stat = processes.read_running(*identity)
            if stat is not None and stat.rss_bytes <= LARGEST_BYTES:
                kilobytes = processes.read_pairs(f"/proc/{identity.pid}/smaps_rollup")
            self._balance_ns -= self._cpu_ns() - before_ns
            if b"Pss" in kilobytes:
                yield Point("pss_bytes", kilobytes[b"Pss"] * 1024, identity)
                private = sum(kilobytes[name] for name in kilobytes if name[:7] == b"Private")
                yield Point("uss_bytes", private * 1024, identity)
