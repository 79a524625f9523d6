"""Counters of the machine: CPU, memory, pressure, disks, network, and space on file systems.

A network file system is never asked: if its server is gone, the question would hang.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.paths import NETWORK_FILE_SYSTEMS
from profd.daemon.store.records import Identity, Point


class Watched(msgspec.Struct, frozen=True):
    """The subject of a reading: the processes of a run and their Python threads.

    The target comes first. Threads are given as OS thread ids.
    """

    identities: tuple[Identity, ...] = ()
    threads: Mapping[Identity, frozenset[int]] = {}


class Rates:
    """Keeps the last reading of totals, by key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before, self._now = (
            dict[Hashable, tuple[int, float]](),
            dict[Hashable, tuple[int, float]](),
        )

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


_DISK_LINE = re.compile(rb"^ *\d+ +\d+ (\S+) ([\d ]+)$", re.MULTILINE)
_NETWORK_LINE = re.compile(rb"^ *(\S+): *([\d ]+)$", re.MULTILINE)
# Partitions, and devices stacked on others or in memory: their traffic is that of the disks
# below.
_NO_DISK = re.compile(
    r"(loop|ram|zram|dm-|md|sr|fd)\d+$|(sd|vd|xvd|hd)[a-z]+\d+$|(nvme\d+n\d+|mmcblk\d+)p\d+$"
)
_STALLED_US = re.compile(rb"^(some|full) .*total=(\d+)", re.MULTILINE)
_MEMORY = re.compile(rb"^MemTotal: +(\d+) kB\n(?:.*\n)?MemAvailable: +(\d+) kB$", re.MULTILINE)
_SECTOR_BYTES = 512


class _Rated:
    def __init__(self, clock: Clock) -> None:
        self._rates = Rates(clock)


class Machine(_Rated):
    """How busy the CPUs are, and how full the memory is."""

    interval_s = 1.0

    def read(self, watched: Watched) -> Iterator[Point]:
        self._rates.turn()
        yield from _cpu_busy("host_cpu_share", self._rates, of_cores=False)
        memory = _memory_bytes()
        if memory is not None:
            total, available = memory
            yield Point("host_memory_used_bytes", total - available)


class MachineAtLength(_Rated):
    """What changes slowly, or matters as a mean: load, swap, traffic, pressure."""

    interval_s = 5.0

    def read(self, watched: Watched) -> Iterator[Point]:
        rates = self._rates
        rates.turn()
        load = (processes.read("/proc/loadavg") or b"").split()
        if load:
            yield Point("host_load_1min", float(load[0]))
        memory = _memory_bytes()
        if memory is not None:
            yield Point("host_memory_total_bytes", memory[0])
        swap = processes.read_pairs("/proc/meminfo")
        if swap.get(b"SwapTotal"):
            yield Point("host_swap_used_bytes", (swap[b"SwapTotal"] - swap[b"SwapFree"]) * 1024)
            yield Point("host_swap_total_bytes", swap[b"SwapTotal"] * 1024)
        machine = processes.cpu_ticks().get("cpu")
        if machine is not None:
            for name, part in (
                ("host_io_wait_share", machine.io_wait),
                ("host_steal_share", machine.stolen),
            ):
                share = _share(rates, name, part, machine.all)
                if share is not None:
                    yield Point(name, share)
        for name, numbers in _busiest("/proc/diskstats", _DISK_LINE, (2, 6)):
            if not _NO_DISK.fullmatch(name) and len(numbers) >= 10:
                yield from rates.points(
                    "disk_read_bytes_per_s", numbers[2] * _SECTOR_BYTES, device=name
                )
                yield from rates.points(
                    "disk_write_bytes_per_s", numbers[6] * _SECTOR_BYTES, device=name
                )
                yield from rates.points("disk_busy_share", numbers[9] / 1000, device=name)
        # A container has a network of its own: the target's counts, not profd's.
        process = watched.identities[0].pid if watched.identities else "self"
        for name, numbers in _busiest(f"/proc/{process}/net/dev", _NETWORK_LINE, (0, 8)):
            if name != "lo":
                yield from rates.points("network_received_bytes_per_s", numbers[0], device=name)
                yield from rates.points("network_sent_bytes_per_s", numbers[8], device=name)
        yield from pressure(rates, "host", "/proc/pressure/{}")


class Cores(_Rated):
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
            share = _share(rates, label, ticks.busy, ticks.all)
            if share is not None:
                yield Point(name, share, device=label if of_cores else None)


def _share(rates: Rates, key: str, part: int, whole: int) -> float | None:
    part_grown, whole_grown = rates.grown((key, "part"), part), rates.grown((key, "whole"), whole)
    return min(part_grown / whole_grown, 1.0) if part_grown is not None and whole_grown else None


def pressure(rates: Rates, prefix: str, path: str, device: str | None = None) -> Iterator[Point]:
    """Yield for which share of the time tasks stalled on CPU, memory and I/O.

    There is a share for some of the tasks, and one for all.
    """
    for resource in ("cpu", "memory", "io"):
        for kind, total_us in _STALLED_US.findall(processes.read(path.format(resource)) or b""):
            full = "_full" if kind == b"full" else ""
            # All tasks of a machine never wait for a CPU at once: that line is there, and 0.
            if not (resource == "cpu" and full):
                name = f"{prefix}_{resource}{full}_pressure_share"
                share = rates.per_s((name, device), int(total_us) / 1e6)
                if share is not None:
                    yield Point(name, min(share, 1.0), device=device)


def _memory_bytes() -> tuple[int, int] | None:
    """Return total and available memory.

    None if the kernel does not say both, as before Linux 3.14.
    """
    found = _MEMORY.search(processes.read("/proc/meminfo") or b"")
    return (int(found[1]) * 1024, int(found[2]) * 1024) if found else None


def _busiest(
    path: str, line: re.Pattern[bytes], columns: tuple[int, int]
) -> list[tuple[str, list[int]]]:
    """Return name and numbers of the devices that moved most so far.

    A node with containers has hundreds of devices.
    """
    text = processes.read(path) or b""
    found = [
        (name.decode(), [int(word) for word in numbers.split()])
        for name, numbers in line.findall(text)
    ]
    moved = [
        (name, numbers) for name, numbers in found if sum(numbers[column] for column in columns)
    ]
    moved.sort(key=lambda device: -sum(device[1][column] for column in columns))
    return moved[:8]


class Space:
    """Asks the file systems that the target sees, which may be those of a container."""

    interval_s = 10.0

    def read(self, watched: Watched) -> Iterator[Point]:
        if not watched.identities:
            return
        process = f"/proc/{watched.identities[0].pid}"
        text = (processes.read(f"{process}/mounts") or b"").decode(errors="replace")
        words = (line.split(" ") for line in text.splitlines())
        # The type of the file system by mount point, the uppermost one of several at one place.
        mounts = {fields[1].replace("\\040", " "): fields[2] for fields in words if len(fields) > 2}
        yield from _space("shm", f"{process}/root/dev/shm", "/dev/shm", mounts)
        try:
            folder = os.readlink(f"{process}/cwd")  # noqa: PTH115
        except OSError:
            return
        yield from _space("disk", f"{process}/cwd", folder, mounts, has_name=True)


def _space(
    name: str, path: str, place: str, mounts: dict[str, str], *, has_name: bool = False
) -> Iterator[Point]:
    """Yield the space at ``path``, which the target calls ``place``."""
    # The mount point, by the text of the place alone.
    mount = max(
        (mount for mount in mounts if Path(place).is_relative_to(mount)), key=len, default=""
    )
    if mounts.get(mount, "").startswith(NETWORK_FILE_SYSTEMS) or mount not in mounts:
        return
    try:
        found = os.statvfs(path)
    except OSError:
        return
    device = mount if has_name else None
    # The space reserved for root counts as used: the target cannot have it.
    yield Point(
        f"{name}_used_bytes", (found.f_blocks - found.f_bavail) * found.f_frsize, device=device
    )
    yield Point(f"{name}_total_bytes", found.f_blocks * found.f_frsize, device=device)
