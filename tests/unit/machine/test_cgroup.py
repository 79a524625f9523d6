"""Control groups of both versions, as containers, batch systems and plain machines have them."""

from __future__ import annotations

import pytest
from support.clocks import StoppedClock
from support.procfiles import TARGET, ProcFiles, files_of, values

from profd.daemon.controlgroups import Group
from profd.daemon.machine import cgroup
from profd.daemon.machine.cgroup import CpuState, Limits, MemoryState
from profd.daemon.machine.machine import Watched
from profd.daemon.store.records import EventHappened, Identity, Point


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> ProcFiles:
    return files_of(monkeypatch)


def test_memory_and_cpu_of_version_2(files: ProcFiles) -> None:
    group = Group(2, "/g", "/g")
    assert cgroup.memory_of(group) is None
    files.contents |= {"/g/memory.max": "1000000\n", "/g/memory.current": "700000\n"}
    files.contents["/g/memory.stat"] = "anon 5\nactive_file 30\ninactive_file 200000\n"
    assert cgroup.memory_of(group) == MemoryState(1_000_000, 500_000)
    files.contents["/g/memory.max"] = "max\n"
    assert cgroup.memory_of(group) is None
    assert cgroup.cpu_of(group) is None
    files.contents |= {
        "/g/cpu.max": "150000 100000\n",
        "/g/cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_usec 25\n",
    }
    assert cgroup.cpu_of(group) == CpuState(1.5, 9, 4)
    files.contents["/g/cpu.max"] = "max 100000\n"
    assert cgroup.cpu_of(group) is None


def test_memory_and_cpu_of_version_1(files: ProcFiles) -> None:
    group = Group(1, "/g", "/g")
    files.contents |= {
        "/g/memory.limit_in_bytes": "1000000\n",
        "/g/memory.usage_in_bytes": "700000\n",
    }
    files.contents["/g/memory.stat"] = "inactive_file 5\ntotal_inactive_file 200000\n"
    assert cgroup.memory_of(group) == MemoryState(1_000_000, 500_000)
    files.contents["/g/memory.limit_in_bytes"] = "9223372036854771712\n"
    assert cgroup.memory_of(group) is None
    files.contents |= {"/g/cpu.cfs_quota_us": "50000\n", "/g/cpu.cfs_period_us": "100000\n"}
    files.contents["/g/cpu.stat"] = "nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n"
    assert cgroup.cpu_of(group) == CpuState(0.5, 9, 4)
    files.contents["/g/cpu.cfs_quota_us"] = "-1\n"
    assert cgroup.cpu_of(group) is None


def test_oom_kills_of_both_versions(files: ProcFiles) -> None:
    files.contents |= {
        "/g/memory.events": "low 1\noom 5\noom_kill 3\n",
        "/g/memory.oom_control": "under_oom 0\noom_kill 2\n",
    }
    assert [cgroup.oom_kills_of(Group(version, "/g", "/g")) for version in (2, 1)] == [3, 2]
    assert cgroup.oom_kills_of(Group(2, "/none", "/none")) is None


WORKER = Identity(TARGET.pid + 1, 1)
JOB = "/sys/fs/cgroup/job"
STEP = f"{JOB}/step"


class Tree:
    """A job with a limit on memory and CPU, and a step without one, that the target and its worker
    are in.
    """

    def __init__(self, files: ProcFiles) -> None:
        self.files = files
        self.clock = StoppedClock()
        self.source = Limits(self.clock)
        files.contents["/proc/self/mountinfo"] = (
            "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        )
        for identity in (TARGET, WORKER):
            files.contents[f"/proc/{identity.pid}/cgroup"] = "0::/job/step\n"
        self.set(
            JOB,
            {"memory.max": "1000", "memory.current": "600", "memory.stat": "inactive_file 100\n"},
        )
        self.set(STEP, {"memory.max": "max", "memory.current": "600", "cpu.max": "max 100000"})
        self.set(
            JOB,
            {
                "cpu.max": "200000 100000",
                "cpu.stat": "nr_periods 10\nnr_throttled 0\nthrottled_usec 0\n",
            },
        )
        self.set(STEP, {"memory.events": "oom_kill 2\n"})

    def set(self, folder: str, contents: dict[str, str]) -> None:
        self.files.contents |= {f"{folder}/{name}": text for name, text in contents.items()}

    def read(self, *identities: Identity, after_s: float = 1.0) -> list[Point | EventHappened]:
        self.clock.advance(after_s)
        return list(self.source.read(Watched(identities or (TARGET, WORKER))))


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(files_of(monkeypatch))


def points(found: list[Point | EventHappened]) -> list[Point]:
    return [one for one in found if isinstance(one, Point)]


def events(found: list[Point | EventHappened]) -> list[str]:
    return [one.text for one in found if isinstance(one, EventHappened)]


def test_limits_of_each_process_are_read_once_a_minute(tree: Tree) -> None:
    limits = [point for point in points(tree.read()) if point.identity]
    assert {(point.name, point.value, point.identity, point.device) for point in limits} == {
        (name, value, identity, "/job")
        for name, value in (("cgroup_memory_limit_bytes", 1000), ("cgroup_cpu_limit_cores", 2.0))
        for identity in (TARGET, WORKER)
    }
    assert [point for point in points(tree.read()) if point.identity] == []
    later = Identity(WORKER.pid + 1, 1)
    tree.files.contents[f"/proc/{later.pid}/cgroup"] = "0::/job/step\n"
    assert {
        point.identity for point in points(tree.read(TARGET, WORKER, later)) if point.identity
    } == {later}
    assert {point.identity for point in points(tree.read(after_s=60)) if point.identity} == {
        TARGET,
        WORKER,
    }


def test_memory_and_stalls_of_a_group_are_read_once_for_all_processes(tree: Tree) -> None:
    line = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    tree.set(STEP, {"io.pressure": line.format(0)})
    found = [point for point in points(tree.read()) if point.identity is None]
    assert values(found) == {
        "cgroup_memory_working_set_bytes@/job": 500,
    }
    assert len(found) == 1
    for _ in range(4):
        tree.read()
    tree.set(STEP, {"io.pressure": line.format(1_000_000)})
    assert values(points(tree.read()))["cgroup_io_pressure_share@/job/step"] == pytest.approx(0.2)


def test_throttling_is_a_share_of_the_periods(tree: Tree) -> None:
    assert not [point for point in points(tree.read()) if "throttled" in point.name]
    tree.set(JOB, {"cpu.stat": "nr_periods 20\nnr_throttled 4\nthrottled_usec 300000\n"})
    found = {point.name: point.value for point in points(tree.read()) if "throttled" in point.name}
    assert found == pytest.approx({"cgroup_cpu_throttled_share": 0.4})
    found = {point.name: point.value for point in points(tree.read()) if "throttled" in point.name}
    assert found == {"cgroup_cpu_throttled_share": 0.0}


def test_processes_that_the_kernel_ended_are_an_event(tree: Tree) -> None:
    assert events(tree.read()) == [], "those of before are none of this run's"
    tree.set(STEP, {"memory.events": "oom_kill 3\n"})
    assert events(tree.read()) == [
        "out of memory: the kernel ended a process of the control group /job/step"
    ]
    assert events(tree.read()) == []
    tree.set(STEP, {"memory.events": "oom_kill 5\n"})
    found = tree.read(WORKER)
    assert events(found) == [
        "out of memory: the kernel ended 2 processes of the control group /job/step"
    ]
    tree.set(STEP, {"memory.events": "oom_kill 6\n"})
    tree.clock.advance(1)
    assert events(list(tree.source.read(Watched()))) != [], "with the end of the last process"


def test_without_control_groups_there_is_nothing(tree: Tree) -> None:
    tree.files.contents.clear()
    assert tree.read() == []
