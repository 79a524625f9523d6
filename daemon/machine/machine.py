"""Counters of the machine: CPU, memory, pressure, disks, network, and space on file systems.

A network file system is never asked: if its server is gone, the question would hang.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import re
import warnings
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path

import msgspec
import psutil

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.paths import NETWORK_FILE_SYSTEMS, mount_of
from profd.daemon.store.records import Identity, Point


class Watched(msgspec.Struct, frozen=True):
    """The subject of a reading: the processes of a run and their Python threads.

    The target comes first. Threads are given as OS thread ids. ``leaders`` are the threads that
    lead if they are not the main ones.
    """

    identities: tuple[Identity, ...] = ()
    threads: Mapping[Identity, frozenset[int]] = {}
    leaders: Mapping[Identity, int] = {}

    def leader(self, identity: Identity) -> int:
        return self.leaders.get(identity, identity.pid)


class Rates:
    """Keeps the last reading of totals, by key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now: dict[Hashable, tuple[int, float]] = {}
        self.turn()

    def turn(self) -> None:
        """Begin a reading.

        What the last one did not hold is forgotten: many processes end in a long run.
        """
        self._before, self._now = self._now, {}

    def per_s(self, key: Hashable, total: float) -> float | None:
        """Return by how much a total grew a second since the last reading; None at the first.

        Never below 0.
        """
        now_ns = self._clock.now_ns()
        before = self._before.get(key)
        self._now[key] = (now_ns, total)
        if before is None or now_ns <= before[0]:
            return None
        return max(total - before[1], 0.0) * SECOND_NS / (now_ns - before[0])

    def points(
        self,
        name: str,
        total: float,
        identity: Identity | None = None,
        os_tid: int | None = None,
        *,
        device: str | None = None,
    ) -> Iterator[Point]:
        """Yield by how much a total grew a second since the last reading, as a point.

        Nothing at the first.
        """
        value = self.per_s((name, identity, os_tid, device), total)
        if value is not None:
            yield Point(name, value, identity, os_tid, device)

    def grown(self, key: Hashable, total: float) -> float | None:
        """Return by how much a total grew since the last reading; None at the first.

        Never below 0.
        """
        before = self._before.get(key)
        self._now[key] = (self._clock.now_ns(), total)
        return None if before is None else max(total - before[1], 0.0)


_NETWORK_LINE = re.compile(r"^ *(\S+): *([\d ]+)$", re.MULTILINE)
# Partitions, and devices stacked on others or in memory: their traffic is that of the disks
# below.
_NO_DISK = re.compile(
    r"(loop|ram|zram|dm-|md|sr|fd)\d+$|(sd|vd|xvd|hd)[a-z]+\d+$|(nvme\d+n\d+|mmcblk\d+)p\d+$"
)
# psutil warns of counters that a container hides: of pages swapped, for example. None is used here.
warnings.filterwarnings("ignore", category=RuntimeWarning, module="psutil")
_IF_SHOWN = contextlib.suppress(OSError, NotImplementedError, LookupError, ValueError)
"""For questions to psutil: not every kernel or container shows each file, or writes it alike."""
_STALLED_US = re.compile(r"^(some|full) .*total=(\d+)", re.MULTILINE)


class Rated:
    """A source of readings of which some are totals."""

    def __init__(self, clock: Clock) -> None:
        self._rates = Rates(clock)


class Machine(Rated):
    """How busy the CPUs are, and how full the memory is."""

    interval_s = 1.0

    def read(self, watched: Watched) -> Iterator[Point]:
        self._rates.turn()
        yield from _cpu_busy("host_cpu_share", self._rates, of_cores=False)
        with _IF_SHOWN:
            memory = psutil.virtual_memory()
            yield Point("host_memory_used_bytes", memory.total - memory.available)


class MachineAtLength(Rated):
    """What changes slowly, or matters as a mean: load, swap, traffic, pressure."""

    interval_s = 5.0

    def read(self, watched: Watched) -> Iterator[Point]:
        rates = self._rates
        rates.turn()
        load = processes.read_text("/proc/loadavg").split()
        if load:
            yield Point("host_load_1min", float(load[0]))
        with _IF_SHOWN:
            yield Point("host_memory_total_bytes", psutil.virtual_memory().total)
            swap = psutil.swap_memory()
            if swap.total:
                yield Point("host_swap_used_bytes", swap.used)
                yield Point("host_swap_total_bytes", swap.total)
        machine = processes.cpu_ticks().get("cpu")
        if machine is not None:
            yield from _share(rates, "host_io_wait_share", machine.io_wait, machine.all)
            yield from _share(rates, "host_steal_share", machine.stolen, machine.all)
        with _IF_SHOWN:
            disks = psutil.disk_io_counters(perdisk=True, nowrap=False)
            traffic = {
                name: (disk.read_bytes, disk.write_bytes)
                for name, disk in disks.items()
                if not _NO_DISK.fullmatch(name)
            }
            for name, (read, written) in _busiest(traffic):
                yield from rates.points("disk_read_bytes_per_s", read, device=name)
                yield from rates.points("disk_write_bytes_per_s", written, device=name)
                busy_s = disks[name].busy_time / 1000
                yield from rates.points("disk_busy_share", busy_s, device=name)
        # A container has a network of its own: the target's counts, not profd's, which are all that
        # psutil reads.
        process = watched.identities[0].pid if watched.identities else "self"
        for name, (received, sent) in _busiest(_network_bytes(f"/proc/{process}/net/dev")):
            yield from rates.points("network_received_bytes_per_s", received, device=name)
            yield from rates.points("network_sent_bytes_per_s", sent, device=name)
        yield from pressure(rates, "host", "/proc/pressure/{}")


class Cores(Rated):
    """How busy each core is, seldom: machines have hundreds, and each point is written."""

    interval_s = 10.0

    def read(self, watched: Watched) -> Iterator[Point]:
        self._rates.turn()
        yield from _cpu_busy("host_core_cpu_share", self._rates, of_cores=True)


def _cpu_busy(name: str, rates: Rates, *, of_cores: bool) -> Iterator[Point]:
    """Yield for which share of the time the machine, or each of its cores, was busy.

    Busy means neither idle nor waiting for I/O.
    """
    for label, ticks in processes.cpu_ticks().items():
        if (label == "cpu") != of_cores:
            yield from _share(rates, name, ticks.busy, ticks.all, label if of_cores else None)


def _share(
    rates: Rates, name: str, part: int, whole: int, device: str | None = None
) -> Iterator[Point]:
    """Yield which part of a total's growth since the last reading was another's; not at first."""
    part_grown = rates.grown((name, device, "part"), part)
    whole_grown = rates.grown((name, device, "whole"), whole)
    if part_grown is not None and whole_grown:
        yield Point(name, min(part_grown / whole_grown, 1.0), device=device)


def pressure(rates: Rates, prefix: str, path: str, device: str | None = None) -> Iterator[Point]:
    """Yield for which share of the time tasks stalled on CPU, memory and I/O.

    There is a share for some of the tasks, and one for all.
    """
    for resource in ("cpu", "memory", "io"):
        for kind, total_us in _STALLED_US.findall(processes.read_text(path.format(resource))):
            full = "_full" if kind == "full" else ""
            # All tasks of a machine never wait for a CPU at once: that line is there, and 0.
            if not (resource == "cpu" and full):
                name = f"{prefix}_{resource}{full}_pressure_share"
                share = rates.per_s((name, device), int(total_us) / 1e6)
                if share is not None:
                    yield Point(name, min(share, 1.0), device=device)


def _network_bytes(path: str) -> dict[str, tuple[int, int]]:
    """Return the bytes that each network device but the loopback has received and sent."""
    found = {}
    for name, words in _NETWORK_LINE.findall(processes.read_text(path)):
        numbers = words.split()
        if name != "lo":
            found[name] = int(numbers[0]), int(numbers[8])
    return found


def _busiest(traffic: dict[str, tuple[int, int]]) -> list[tuple[str, tuple[int, int]]]:
    """Return the devices that moved most so far.

    A node with containers has hundreds of devices.
    """
    moved = [(name, both) for name, both in traffic.items() if sum(both)]
    return heapq.nlargest(8, moved, key=lambda device: sum(device[1]))


class Space:
    """Asks the file systems that the target sees, which may be those of a container."""

    interval_s = 10.0

    def read(self, watched: Watched) -> Iterator[Point]:
        if not watched.identities:
            return
        process = f"/proc/{watched.identities[0].pid}"
        mounts = processes.read_text(f"{process}/mounts")
        yield from _space("shm", f"{process}/root/dev/shm", "/dev/shm", mounts)
        try:
            folder = os.readlink(f"{process}/cwd")  # noqa: PTH115
        except OSError:
            return
        yield from _space("disk", f"{process}/cwd", folder, mounts, has_name=True)


def _space(
    name: str, path: str, place: str, mounts: str, *, has_name: bool = False
) -> Iterator[Point]:
    """Yield the space at ``path``, which the target calls ``place``."""
    mount, kind, _ = mount_of(Path(place), mounts)
    if not kind or kind.startswith(NETWORK_FILE_SYSTEMS):
        return
    try:
        found = psutil.disk_usage(path)
    except OSError:
        return
    device = str(mount) if has_name else None
    # The space reserved for root counts as used: the target cannot have it.
    yield Point(f"{name}_used_bytes", found.total - found.free, device=device)
    yield Point(f"{name}_total_bytes", found.total, device=device)
