"""Counters of the machine: CPU, memory, pressure, disks, network, and room on file systems.

A network file system is never asked: where its server is gone, so would be who asks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.machine.pollthread import Watched
from profd.daemon.paths import NETWORK_FILE_SYSTEMS
from profd.daemon.store.records import Point


class Rates:
    """Keeps the last reading of totals, by a key that tells them apart."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[Hashable, tuple[int, float]] = {}
        self._now: dict[Hashable, tuple[int, float]] = {}

    def turn(self) -> None:
        """Begin a reading. Whatever the last one did not hold is forgotten: a long run sees many processes go."""
        self._before, self._now = self._now, {}

    def per_s(self, key: Hashable, total: float) -> float | None:
        """Return by how much a total grew a second since the last reading; None at the first. Never below 0."""
        now_ns = self._clock.now_ns()
        before = self._before.get(key)
        self._now[key] = (now_ns, total)
        if before is None or now_ns <= before[0]:
            return None
        return max(total - before[1], 0.0) * SECOND_NS / (now_ns - before[0])

    def grown(self, key: Hashable, total: float) -> float | None:
        """Return by how much a total grew since the last reading; None at the first. Never below 0."""
        before = self._before.get(key)
        self._now[key] = (self._clock.now_ns(), total)
        return None if before is None else max(total - before[1], 0.0)


_CPU_LINE = re.compile(rb"^(cpu\d*) +([\d ]+)$", re.MULTILINE)
_DISK_LINE = re.compile(rb"^ *\d+ +\d+ (\S+) ([\d ]+)$", re.MULTILINE)
_NETWORK_LINE = re.compile(rb"^ *(\S+): *([\d ]+)$", re.MULTILINE)
# Partitions, and what is stacked on other devices or in memory: their traffic is that of the disks below.
_NO_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd)\d+$|(sd|vd|xvd|hd)[a-z]+\d+$|(nvme\d+n\d+|mmcblk\d+)p\d+$")
_MEMORY = re.compile(rb"^MemTotal: +(\d+) kB\n(?:.*\n)?MemAvailable: +(\d+) kB$", re.MULTILINE)
_SECTOR_BYTES = 512
_MOST_DEVICES = 8
_USER, _NICE, _SYSTEM, _IDLE, _IO_WAIT, _INTERRUPT, _SOFT_INTERRUPT, _STEAL = range(8)


class Machine:
    """How busy the CPUs are, and how full the memory is."""

    interval_s = 1.0

    def __init__(self, clock: Clock) -> None:
        self._rates = Rates(clock)
        self._shares = CpuShares(self._rates)

    def read(self, watched: Watched) -> Iterator[Point]:
        """Yield two points."""
        self._rates.turn()
        yield from self._shares.busy("host_cpu_share", processes.read("/proc/stat"), of_cores=False)
        memory = _memory()
        if memory is not None:
            yield Point("host_memory_used_bytes", memory.total - memory.available)


class MachineAtLength:
    """What changes slowly, or matters as a mean: load, swap, traffic, stalls."""

    interval_s = 5.0

    def __init__(self, clock: Clock) -> None:
        self._rates = Rates(clock)
        self._shares = CpuShares(self._rates)

    def read(self, watched: Watched) -> Iterator[Point]:
        """Yield the points of everything that this kernel tells of."""
        self._rates.turn()
        load = (processes.read("/proc/loadavg") or b"").split()
        if load:
            yield Point("host_load_1min", float(load[0]))
        memory = _memory()
        if memory is not None:
            yield Point("host_memory_total_bytes", memory.total)
        yield from _swap()
        yield from self._shares.of_whole(processes.read("/proc/stat"))
        yield from self._disks()
        yield from self._network(watched)
        yield from pressure(self._rates, "host", "/proc/pressure/{}")

    def _disks(self) -> Iterator[Point]:
        for name, numbers in _busiest(processes.read("/proc/diskstats"), _DISK_LINE, (2, 6)):
            if _NO_DISK.fullmatch(name) or len(numbers) < 10:
                continue
            yield from self._rate("disk_read_bytes_per_s", name, numbers[2] * _SECTOR_BYTES)
            yield from self._rate("disk_write_bytes_per_s", name, numbers[6] * _SECTOR_BYTES)
            yield from self._rate("disk_busy_share", name, numbers[9] / 1000)

    def _network(self, watched: Watched) -> Iterator[Point]:
        # A container has a network of its own: the target's counts, not profd's.
        of = watched.identities[0].pid if watched.identities else "self"
        for name, numbers in _busiest(processes.read(f"/proc/{of}/net/dev"), _NETWORK_LINE, (0, 8)):
            if name != "lo":
                yield from self._rate("network_received_bytes_per_s", name, numbers[0])
                yield from self._rate("network_sent_bytes_per_s", name, numbers[8])

    def _rate(self, name: str, device: str, total: float) -> Iterator[Point]:
        value = self._rates.per_s((name, device), total)
        if value is not None:
            yield Point(name, value, device=device)


class Cores:
    """How busy each core is, seldom: machines have hundreds, and each point is written."""

    interval_s = 10.0

    def __init__(self, clock: Clock) -> None:
        self._rates = Rates(clock)
        self._shares = CpuShares(self._rates)

    def read(self, watched: Watched) -> Iterator[Point]:
        """Yield a point a core."""
        self._rates.turn()
        yield from self._shares.busy("host_core_cpu_share", processes.read("/proc/stat"), of_cores=True)


class CpuShares:
    """Turns the lines of /proc/stat into shares of the time between two readings."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates

    def busy(self, name: str, text: bytes | None, *, of_cores: bool) -> Iterator[Point]:
        """Yield for which share of the time the machine, or each of its cores, was neither idle nor waiting for I/O."""
        for label, ticks in _cpu_lines(text):
            if (label == "cpu") != of_cores:
                idle = ticks[_IDLE] + ticks[_IO_WAIT]
                share = self._share(label, sum(ticks) - idle, sum(ticks))
                if share is not None:
                    yield Point(name, share, device=label if of_cores else None)

    def of_whole(self, text: bytes | None) -> Iterator[Point]:
        """Yield which share of the machine's CPU time waited for I/O, and which the hypervisor gave to others."""
        for label, ticks in _cpu_lines(text):
            for name, index in (("host_io_wait_share", _IO_WAIT), ("host_steal_share", _STEAL)):
                share = self._share(name, ticks[index], sum(ticks)) if label == "cpu" else None
                if share is not None:
                    yield Point(name, share)

    def _share(self, key: str, part: int, whole: int) -> float | None:
        part_grown, whole_grown = self._rates.grown((key, "part"), part), self._rates.grown((key, "whole"), whole)
        return min(part_grown / whole_grown, 1.0) if part_grown is not None and whole_grown else None


def pressure(rates: Rates, prefix: str, path: str, device: str | None = None) -> Iterator[Point]:
    """Yield for which share of the time tasks stood still for want of CPU, memory and I/O: some of them, and all."""
    for resource in ("cpu", "memory", "io"):
        for kind, total_us in processes.read_pressure_us(path.format(resource)).items():
            full = "_full" if kind == b"full" else ""
            # All tasks of a machine never wait for a CPU at once: that line is there, and 0.
            if not (resource == "cpu" and full):
                name = f"{prefix}_{resource}{full}_pressure_share"
                share = rates.per_s((name, device), total_us / 1e6)
                if share is not None:
                    yield Point(name, min(share, 1.0), device=device)


class Memory(NamedTuple):
    """Main memory in bytes."""

    total: int
    available: int


def _memory() -> Memory | None:
    """Return the machine's memory; psutil, at ten times the cost, for kernels that do not say what is available."""
    found = _MEMORY.search(processes.read("/proc/meminfo") or b"")
    if found:
        return Memory(int(found[1]) * 1024, int(found[2]) * 1024)
    try:
        told = psutil.virtual_memory()
    except (OSError, ValueError, KeyError):
        return None
    return Memory(told.total, told.available)


def _swap() -> Iterator[Point]:
    swap = processes.read_pairs("/proc/meminfo")
    if swap.get(b"SwapTotal"):
        yield Point("host_swap_used_bytes", (swap[b"SwapTotal"] - swap[b"SwapFree"]) * 1024)
        yield Point("host_swap_total_bytes", swap[b"SwapTotal"] * 1024)


def _cpu_lines(text: bytes | None) -> Iterator[tuple[str, list[int]]]:
    """Yield the label and the ticks of each line, guests left out: they are in user time already."""
    for label, numbers in _CPU_LINE.findall(text or b""):
        yield label.decode(), [int(number) for number in numbers.split()[: _STEAL + 1]]


def _busiest(text: bytes | None, line: re.Pattern[bytes], columns: tuple[int, int]) -> Iterable[tuple[str, list[int]]]:
    """Return name and numbers of the devices that moved most so far: a node with containers has hundreds."""
    found = [(name.decode(), [int(word) for word in numbers.split()]) for name, numbers in line.findall(text or b"")]
    moved = [(name, numbers) for name, numbers in found if sum(numbers[column] for column in columns)]
    moved.sort(key=lambda device: -sum(device[1][column] for column in columns))
    return moved[:_MOST_DEVICES]


class Space:
    """Asks the file systems that the target sees, which may be those of a container."""

    interval_s = 10.0

    def read(self, watched: Watched) -> Iterator[Point]:
        """Yield what is used of each, and how large it is."""
        if not watched.identities:
            return
        process = f"/proc/{watched.identities[0].pid}"
        mounts = _mounts(processes.read(f"{process}/mounts"))
        yield from _room("shm", f"{process}/root/dev/shm", _mount_of("/dev/shm", mounts), mounts)
        try:
            folder = os.readlink(f"{process}/cwd")  # noqa: PTH115
        except OSError:
            return
        yield from _room("disk", f"{process}/cwd", _mount_of(folder, mounts), mounts, has_name=True)


def _room(name: str, path: str, mount: str, mounts: dict[str, str], *, has_name: bool = False) -> Iterator[Point]:
    if mounts.get(mount, "").startswith(NETWORK_FILE_SYSTEMS) or mount not in mounts:
        return
    try:
        found = os.statvfs(path)
    except OSError:
        return
    device = mount if has_name else None
    # What is kept for root counts as used: the target cannot have it.
    yield Point(f"{name}_used_bytes", (found.f_blocks - found.f_bavail) * found.f_frsize, device=device)
    yield Point(f"{name}_total_bytes", found.f_blocks * found.f_frsize, device=device)


def _mounts(text: bytes | None) -> dict[str, str]:
    """Return the type of the file system at each mount point, the uppermost where several lie at one place."""
    words = (line.split(" ") for line in (text or b"").decode(errors="replace").splitlines())
    return {fields[1].replace("\\040", " "): fields[2] for fields in words if len(fields) > 2}


def _mount_of(path: str, mounts: dict[str, str]) -> str:
    """Return the mount point that a path lies below, by its text alone."""
    return max((mount for mount in mounts if Path(path).is_relative_to(mount)), key=len, default="")
