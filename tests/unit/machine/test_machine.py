"""Counters of the machine, from files in the test's hands."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.clocks import StoppedClock
from support.procfiles import TARGET, ProcFiles, files_of, read, values

from profd.daemon.machine.machine import Cores, Machine, MachineAtLength, Space
from profd.daemon.store.records import Identity


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ProcFiles:
    """Give files for us and for psutil, of a machine without disks, network and memory."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    made = files_of(monkeypatch)
    made.write("diskstats", "")
    return made


def cpu(*cores: tuple[int, ...]) -> str:
    """Return /proc/stat.

    Of each core user, nice, system, idle, I/O wait, two interrupts, steal, guest.
    """
    whole = [sum(ticks) for ticks in zip(*cores, strict=True)]
    lines = [f"cpu  {' '.join(map(str, whole))}"]
    lines += [f"cpu{n} {' '.join(map(str, ticks))}" for n, ticks in enumerate(cores)]
    return "\n".join([*lines, "intr 12 3 4", "ctxt 5", ""])


IDLE = (0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_cpu_share_is_that_since_the_last_reading(clock: StoppedClock, files: ProcFiles) -> None:
    files.contents["/proc/stat"] = cpu((500, 0, 0, 0, 0, 0, 0, 0, 0), IDLE)
    source = Machine(clock)
    assert values(read(source)) == {}
    clock.advance(1)
    # Guest time is within user time; waiting for I/O is idle; what the hypervisor took is not.
    files.contents["/proc/stat"] = cpu(
        (530, 5, 10, 35, 10, 3, 2, 5, 30), (0, 0, 0, 100, 0, 0, 0, 0, 0)
    )
    assert values(read(source)) == pytest.approx({"host_cpu_share": 55 / 200})


MEMORY = (
    "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nBuffers: 1 kB\nCached: 1 kB\n"
    "Active: 1 kB\nInactive: 1 kB\nShmem: 1 kB\nSlab: 1 kB\nSwapTotal: {} kB\nSwapFree: {} kB\n"
)


def test_memory_and_swap_are_read_where_there_is_some(
    clock: StoppedClock, files: ProcFiles
) -> None:
    files.write("vmstat", "pswpin 0\npswpout 0\n")
    files.write("meminfo", MEMORY.format(0, 0))
    assert values(read(Machine(clock))) == {"host_memory_used_bytes": 600 * 1024}
    assert values(read(MachineAtLength(clock))) == {"host_memory_total_bytes": 1000 * 1024}
    files.write("meminfo", MEMORY.format(50, 20))
    assert values(read(MachineAtLength(clock))) == {
        "host_memory_total_bytes": 1000 * 1024,
        "host_swap_used_bytes": 30720,
        "host_swap_total_bytes": 51200,
    }


def changes(
    files: ProcFiles,
    path: str,
    before: str,
    after: str,
    *identities: Identity,
    of: type[MachineAtLength | Cores] = MachineAtLength,
) -> dict[str, float]:
    """Return the readings of a file that becomes another one within five seconds.

    The first look has none.
    """
    clock = StoppedClock()
    source = of(clock)
    files.contents[path] = before
    assert read(source, *identities) == []
    clock.advance(5)
    files.contents[path] = after
    return values(read(source, *identities))


def test_io_wait_steal_and_cores(files: ProcFiles) -> None:
    after = cpu((400, 0, 0, 0, 50, 0, 0, 50, 0), (0, 0, 0, 500, 0, 0, 0, 0, 0))
    shares = {"host_io_wait_share": 0.05, "host_steal_share": 0.05}
    assert changes(files, "/proc/stat", cpu(IDLE, IDLE), after) == pytest.approx(shares)
    shares = {"host_core_cpu_share@cpu0": 0.9, "host_core_cpu_share@cpu1": 0.0}
    assert changes(files, "/proc/stat", cpu(IDLE, IDLE), after, of=Cores) == pytest.approx(shares)


def test_disks_without_partitions_and_what_is_stacked(files: ProcFiles) -> None:
    def disks(read_sectors: int, written: int, busy_ms: int) -> str:
        numbers = f"1 0 {read_sectors} 1 1 0 {written} 1 0 {busy_ms} 9 0 0 0 0 0 0"
        names = ("sda", "sda1", "nvme0n1", "nvme0n1p2", "loop0", "dm-0", "md127", "zram0")
        return (
            "".join(f" 254       0 {name} {numbers}\n" for name in names)
            + "   8  16 sdb"
            + " 0" * 17
            + "\n"
        )

    expected = {
        "disk_read_bytes_per_s": 102400,
        "disk_write_bytes_per_s": 51200,
        "disk_busy_share": 0.5,
    }
    clock = StoppedClock()
    source = MachineAtLength(clock)
    files.write("diskstats", disks(10, 10, 10))
    assert read(source) == []
    clock.advance(5)
    files.write("diskstats", disks(10 + 1000, 10 + 500, 10 + 2500))
    assert values(read(source)) == {
        f"{name}@{disk}": value for disk in ("sda", "nvme0n1") for name, value in expected.items()
    }


def test_network_is_the_target_s_own_without_loopback_and_of_many_devices_the_busiest(
    files: ProcFiles,
) -> None:
    text = (
        "Inter-| Receive | Transmit\n face |bytes packets|bytes\n    lo: 900 1 0 0 0 0 0 0 900 1 "
        "0 0 0 0 0 0\n"
    )
    text += "  eth0: {} 1 0 0 0 0 0 0 {} 1 0 0 0 0 0 0\n"
    path, before, after = (
        f"/proc/{TARGET.pid}/net/dev",
        text.format(1000, 50),
        text.format(6000, 100),
    )
    assert changes(files, path, before, after, TARGET) == {
        "network_received_bytes_per_s@eth0": 1000,
        "network_sent_bytes_per_s@eth0": 10,
    }
    rows = "".join(f"  veth{n}: {n} 0 0 0 0 0 0 0 {n} 0 0 0 0 0 0 0\n" for n in range(100))
    devices = {name.partition("@")[2] for name in changes(files, "/proc/self/net/dev", rows, rows)}
    assert devices == {f"veth{n}" for n in range(92, 100)}


@pytest.mark.parametrize(
    ("name", "full"), [("cpu", {}), ("memory", {"host_memory_full_pressure_share": 0.1})]
)
def test_pressure_is_the_share_of_time_that_tasks_stood_still(
    files: ProcFiles, name: str, full: dict[str, float]
) -> None:
    text = (
        "some avg10=9.00 avg60=9.00 avg300=9.00 total={}\nfull avg10=9.00 avg60=9.00 avg300=9.00 "
        "total={}\n"
    )
    found = changes(
        files, f"/proc/pressure/{name}", text.format(1000, 500), text.format(1_001_000, 500_500)
    )
    assert found == pytest.approx({f"host_{name}_pressure_share": 0.2, **full})


MOUNTS = "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n{} /data\\040sets {} rw 0 0\n"


def asked(
    monkeypatch: pytest.MonkeyPatch, file_system: str, folder: str
) -> tuple[dict[str, float], list[str]]:
    """Return the readings of the space on disks, and the paths that the kernel was asked about."""
    paths: list[str] = []

    def statvfs(path: str) -> SimpleNamespace:
        paths.append(path)
        return SimpleNamespace(f_blocks=100, f_bavail=30, f_bfree=40, f_frsize=4096)

    files_of(monkeypatch, {f"/proc/{TARGET.pid}/mounts": MOUNTS.format("server:/x", file_system)})
    monkeypatch.setattr(os, "readlink", lambda path: folder)
    monkeypatch.setattr(os, "statvfs", statvfs)
    return values(read(Space(), TARGET)), paths


def test_space_is_read_of_shared_memory_and_of_the_targets_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space, paths = asked(monkeypatch, "xfs", "/data sets/run 1")
    assert space == {
        "shm_used_bytes": 70 * 4096,
        "shm_total_bytes": 100 * 4096,
        "disk_used_bytes@/data sets": 70 * 4096,
        "disk_total_bytes@/data sets": 100 * 4096,
    }
    assert paths == [f"/proc/{TARGET.pid}/root/dev/shm", f"/proc/{TARGET.pid}/cwd"]


@pytest.mark.parametrize(
    "file_system", ["nfs4", "nfs", "fuse.sshfs", "lustre", "cifs", "ceph", "9p"]
)
def test_a_network_file_system_is_not_asked_but_one_beside(
    monkeypatch: pytest.MonkeyPatch, file_system: str
) -> None:
    space, paths = asked(monkeypatch, file_system, "/data sets/run 1")
    assert space.keys() == {"shm_used_bytes", "shm_total_bytes"}
    assert paths == [f"/proc/{TARGET.pid}/root/dev/shm"]
    space, _ = asked(monkeypatch, file_system, "/data sets 2")
    assert "disk_used_bytes@/" in space


def test_what_a_kernel_writes_in_another_way_leaves_the_rest(
    clock: StoppedClock, files: ProcFiles
) -> None:
    files.contents["/proc/loadavg"] = "0.5 0.4 0.3 1/200 4711"
    files.write("meminfo", "")
    files.write("diskstats", "   8  16 sdb 1 2 3\n")
    assert values(read(MachineAtLength(clock))) == {"host_load_1min": 0.5}
    assert read(Machine(clock)) == []
    files.write("meminfo", "MemTotal:\n")
    assert read(Machine(clock)) == []


@pytest.mark.usefixtures("files")
def test_missing_files_give_no_values(clock: StoppedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def disks(**_: bool) -> None:
        raise NotImplementedError

    monkeypatch.setattr(psutil, "disk_io_counters", disks)
    for source in (Machine(clock), MachineAtLength(clock), Space()):
        assert read(source, TARGET) == read(source) == []
