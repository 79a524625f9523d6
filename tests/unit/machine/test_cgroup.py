"""Control groups of both versions, as containers, batch systems and plain machines have them."""

from __future__ import annotations

import pytest
from support.procfiles import ProcFiles, files_of

from profd.daemon.machine import cgroup
from profd.daemon.machine.cgroup import CpuState, Group, Hierarchy, MemoryState

VERSION_2 = Hierarchy(2, frozenset({"rw"}), "/", "/sys/fs/cgroup")
MEMORY_1 = Hierarchy(1, frozenset({"rw", "memory"}), "/", "/sys/fs/cgroup/memory")
CPU_1 = Hierarchy(1, frozenset({"rw", "cpu", "cpuacct"}), "/", "/sys/fs/cgroup/cpu,cpuacct")
UNIFIED = Hierarchy(2, frozenset({"rw"}), "/", "/sys/fs/cgroup/unified")


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> ProcFiles:
    return files_of(monkeypatch)


def test_hierarchies_are_found_among_the_mounts() -> None:
    text = (
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
        "36 31 0:33 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
        "cut off"
    )
    assert cgroup.hierarchies(text.encode()) == [
        MEMORY_1,
        Hierarchy(2, frozenset({"rw", "nsdelegate"}), "/docker/ab", "/sys/fs/cgroup"),
    ]
    assert cgroup.hierarchies(None) == []


def folders(files: ProcFiles, text: str, controller: str, *mounted: Hierarchy) -> list[str]:
    files.contents["/proc/5/cgroup"] = text
    return [group.folder for group in cgroup.groups_of(5, controller, mounted)]


def test_a_process_is_in_its_group_and_in_all_above(files: ProcFiles) -> None:
    found = folders(files, "0::/user.slice/job 1:2/step\n", "memory", VERSION_2)
    base = "/sys/fs/cgroup"
    assert found == [f"{base}/user.slice/job 1:2/step", f"{base}/user.slice/job 1:2", f"{base}/user.slice", base]


def test_where_both_versions_are_there_a_controller_has_one(files: ProcFiles) -> None:
    text = "5:cpu,cpuacct:/b\n4:memory:/a\n1:name=systemd:/x\n0::/z\n"
    mounted = (UNIFIED, MEMORY_1, CPU_1)
    assert folders(files, text, "memory", *mounted)[0] == "/sys/fs/cgroup/memory/a"
    assert folders(files, text, "cpu", *mounted)[0] == "/sys/fs/cgroup/cpu,cpuacct/b"
    assert folders(files, text, "io", *mounted)[0] == "/sys/fs/cgroup/unified/z"


@pytest.mark.parametrize(("root", "path"), [("/docker/ab", "/docker/ab"), ("/", "/../../outside"), ("/pod", "/else")])
def test_a_container_sees_its_own_group_at_the_mount_point(files: ProcFiles, root: str, path: str) -> None:
    inside = VERSION_2._replace(root=root)
    assert folders(files, f"0::{path}\n", "memory", inside) == ["/sys/fs/cgroup"]


def test_a_process_that_is_gone_has_no_groups(files: ProcFiles) -> None:
    assert cgroup.groups_of(5, "memory", [VERSION_2]) == []


def test_memory_of_version_2(files: ProcFiles) -> None:
    group = Group(2, "/g", "/g")
    assert cgroup.memory_of(group) is None
    files.contents |= {"/g/memory.max": "1000000\n", "/g/memory.current": "700000\n"}
    files.contents["/g/memory.stat"] = "anon 5\nactive_file 30\ninactive_file 200000\n"
    assert cgroup.memory_of(group) == MemoryState(1_000_000, 700_000, 500_000)
    files.contents["/g/memory.max"] = "max\n"
    assert cgroup.memory_of(group) is None


def test_memory_of_version_1(files: ProcFiles) -> None:
    group = Group(1, "/g", "/g")
    files.contents |= {"/g/memory.limit_in_bytes": "1000000\n", "/g/memory.usage_in_bytes": "700000\n"}
    files.contents["/g/memory.stat"] = "inactive_file 5\ntotal_inactive_file 200000\n"
    assert cgroup.memory_of(group) == MemoryState(1_000_000, 700_000, 500_000)
    files.contents["/g/memory.limit_in_bytes"] = "9223372036854771712\n"
    assert cgroup.memory_of(group) is None


def test_cpu_of_version_2(files: ProcFiles) -> None:
    group = Group(2, "/g", "/g")
    assert cgroup.cpu_of(group) is None
    files.contents |= {
        "/g/cpu.max": "150000 100000\n",
        "/g/cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_usec 25\n",
    }
    assert cgroup.cpu_of(group) == CpuState(1.5, 9, 4, 25e-6)
    files.contents["/g/cpu.max"] = "max 100000\n"
    assert cgroup.cpu_of(group) is None


def test_cpu_of_version_1(files: ProcFiles) -> None:
    group = Group(1, "/g", "/g")
    files.contents |= {"/g/cpu.cfs_quota_us": "50000\n", "/g/cpu.cfs_period_us": "100000\n"}
    files.contents["/g/cpu.stat"] = "nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n"
    assert cgroup.cpu_of(group) == CpuState(0.5, 9, 4, 2.5)
    files.contents["/g/cpu.cfs_quota_us"] = "-1\n"
    assert cgroup.cpu_of(group) is None


def test_oom_kills_of_both_versions(files: ProcFiles) -> None:
    files.contents |= {
        "/g/memory.events": "low 1\noom 5\noom_kill 3\n",
        "/g/memory.oom_control": "under_oom 0\noom_kill 2\n",
    }
    assert [cgroup.oom_kills_of(Group(version, "/g", "/g")) for version in (2, 1)] == [3, 2]
    assert cgroup.oom_kills_of(Group(2, "/none", "/none")) is None
