"""When and where the kernel runs profd's processes: with real ones, and machines whose cores are as
busy as is said.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S

from profd.daemon import processes, scheduling
from profd.daemon.processes import CpuTicks


@pytest.mark.parametrize(("before", "after"), [(0, scheduling.NICENESS), (10, 10)])
def test_a_process_gives_way_and_is_not_raised(before: int, after: int) -> None:
    code = (
        "import os\nfrom profd.daemon import "
        f"scheduling\nos.nice({before})\nscheduling.give_way(os.getpid())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print(os.nice(0))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == after


def slice_of(pid: int) -> list[str]:
    """Return the slice of a process in ns; nothing where the kernel does not say."""
    lines = (processes.read(f"/proc/{pid}/sched") or b"").decode().splitlines()
    return [line.rpartition(" ")[2] for line in lines if line.startswith("se.slice")]


@pytest.mark.skipif(
    not slice_of(os.getpid()), reason="this kernel has no slices, or does not show them"
)
def test_a_process_that_gives_way_has_a_long_slice() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        scheduling.give_way(process.pid)
        found, policy = slice_of(process.pid), os.sched_getscheduler(process.pid)
        process.kill()
    assert (found, policy) == ([str(scheduling.LONG_SLICE_NS)], os.SCHED_OTHER)


def test_a_process_that_waits_for_all_others_goes_on_doing_so() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        scheduling.give_way(process.pid)
        policy = os.sched_getscheduler(process.pid)
        process.kill()
    assert policy == os.SCHED_IDLE


@pytest.mark.parametrize(
    ("leads", "after"), [(True, str(scheduling.NICENESS)), (False, "/autogroup-17 nice 0")]
)
def test_a_session_gives_way_if_it_is_its_own(leads: bool, after: str, tmp_path: Path) -> None:
    group = tmp_path / "self/autogroup"
    group.parent.mkdir()
    group.write_text("/autogroup-17 nice 0")
    code = (
        "from pathlib import Path\nfrom profd.daemon import scheduling\nscheduling.PROC = "
        f"Path({str(tmp_path)!r})\n"
    )
    code += "scheduling.give_way_as_session()"
    subprocess.run([sys.executable, "-c", code], start_new_session=leads, check=True)
    assert group.read_text() == after


def test_a_kernel_that_groups_no_sessions_stops_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "PROC", tmp_path)
    monkeypatch.setattr(os, "getsid", lambda _pid: os.getpid())
    scheduling.give_way_as_session()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, CpuTicks]:
    """Three cores, of which this process may run on the first two."""
    ticks = {f"cpu{core}": CpuTicks(0, 0, 0, 0) for core in range(3)}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr(processes, "cpu_ticks", ticks.copy)
    return ticks


def after_a_second(machine: dict[str, CpuTicks], *idle: int) -> scheduling.FreeCores:
    """Return the cores after a second of 100 ticks, of which each was idle for so many."""
    cores = scheduling.FreeCores()
    for core, ticks in enumerate(idle):
        machine[f"cpu{core}"] = CpuTicks(ticks, 0, 0, 100)
    cores.look()
    return cores


def test_py_spy_leaves_the_core_of_what_it_samples_if_no_other_has_time(
    machine: dict[str, CpuTicks],
) -> None:
    cores = after_a_second(machine, 30, 1, 100)  # the third is not ours
    assert cores.beside(0) == {1}
    assert cores.beside(1) == {0, 1}  # the first has time


def test_a_core_that_waits_for_a_disk_has_time(machine: dict[str, CpuTicks]) -> None:
    cores = scheduling.FreeCores()
    machine["cpu1"] = CpuTicks(0, 90, 0, 100)
    cores.look()
    assert cores.beside(0) == {0, 1}


def test_py_spy_may_return_once_another_core_has_time(machine: dict[str, CpuTicks]) -> None:
    cores = after_a_second(machine, 0, 0, 0)
    assert cores.beside(0) == {1}
    machine["cpu1"] = CpuTicks(50, 0, 0, 200)
    cores.look()
    assert cores.beside(0) == {0, 1}


def test_py_spy_goes_nowhere_where_nothing_is_known(
    machine: dict[str, CpuTicks], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scheduling.FreeCores().beside(0) == {0, 1}
    with monkeypatch.context() as hidden:  # nobody may read how busy they are
        hidden.setattr(processes, "cpu_ticks", dict[str, CpuTicks])
        assert after_a_second(machine, 0, 0, 0).beside(0) == {0, 1}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    machine.update({core: CpuTicks(0, 0, 0, 0) for core in machine})
    assert after_a_second(machine, 0, 0, 0).beside(0) == {0}  # there is no other


THREADED = "import threading; threading.Thread(target=input).start(); print(flush=True)"


def test_all_threads_of_a_process_are_kept_to_cores() -> None:
    core = max(os.sched_getaffinity(0))
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", THREADED], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        scheduling.keep_to(process.pid, frozenset({core}))
        found = [
            os.sched_getaffinity(int(os_tid)) for os_tid in os.listdir(f"/proc/{process.pid}/task")
        ]
        process.communicate(b"\n", DEADLINE_S)
    assert found == [{core}, {core}]
    scheduling.keep_to(process.pid, frozenset({core}))  # it is gone
