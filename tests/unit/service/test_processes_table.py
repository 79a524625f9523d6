"""What the supervisor learns of real processes, from /proc alone."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.sessions import running
from support.waiting import until

from profd.daemon import processes
from profd.daemon.service import processes as subjects
from profd.daemon.service.processes import ProcessTable, Reads

WAITING = "import time\nprint('ready', flush=True)\ninput()\n"
MAPPING = """
import mmap
with open("{file}", "r+b") as opened:
    held = mmap.mmap(opened.fileno(), 0)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(WAITING)
    return path


def test_a_python_is_told_as_it_is(script: Path) -> None:
    with running(script, "--lr", "1") as process:
        found = ProcessTable().look(process.pid)
    assert found is not None
    assert found.identity.pid == process.pid
    assert found.command[-3:] == (str(script), "--lr", "1")
    assert (found.parent, found.uid, found.uses_torch, found.uses_gpu) == (os.getpid(), os.getuid(), False, False)
    assert 0 <= found.age_s < 60


@pytest.mark.parametrize(("mapped", "torch", "gpu"), [("libtorch_cpu.so", True, False), ("nothing", False, False)])
def test_torch_is_told_by_its_library(mapped: str, torch: bool, gpu: bool, tmp_path: Path) -> None:
    library = tmp_path / mapped
    library.write_bytes(bytes(mmap.PAGESIZE))
    script = tmp_path / "train.py"
    script.write_text(MAPPING.format(file=library) + WAITING)
    with running(script) as process:
        found = ProcessTable().look(process.pid)
    assert found is not None
    assert (found.uses_torch, found.uses_gpu) == (torch, gpu)


def test_a_gpu_is_told_by_its_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.write_bytes(bytes(mmap.PAGESIZE))
    monkeypatch.setattr(subjects, "_GPU_DEVICE", str(device))
    script = tmp_path / "train.py"
    script.write_text(MAPPING.format(file=device) + WAITING)
    with running(script) as process:
        found = ProcessTable().look(process.pid)
    assert found is not None
    assert (found.uses_torch, found.uses_gpu) == (False, True)


def test_what_is_no_python_of_ours_is_not_told() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert ProcessTable().look(process.pid) is None
        assert process.pid in ProcessTable().pids()
        process.kill()
    assert ProcessTable().look(process.pid) is None
    words = [sys.executable, "-m", "profd.daemon.session"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as own:
        assert ProcessTable().look(own.pid) is None
        own.kill()


def test_a_program_with_python_in_it_is_told_and_others_are_soon_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    embedding, other = os.getpid(), os.getppid()
    asked: list[int] = []

    def maps(pid: int) -> str:
        asked.append(pid)
        return "7f00 /usr/lib/libpython3.11.so.1.0" if pid == embedding else "7f00 /usr/lib/libc.so"

    monkeypatch.setattr(processes, "maps", maps)
    monkeypatch.setattr(processes, "link", lambda pid, name: "/usr/bin/server")
    table = ProcessTable()
    assert table.look(embedding) is not None
    assert [table.look(other) for _ in range(9)] == [None] * 9
    assert asked.count(other) == 5
    monkeypatch.setattr(processes, "link", lambda pid, name: "/usr/bin/python3.11")  # it has become another program
    table.look(other)
    assert asked.count(other) == 6


def test_a_recording_is_known_by_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {
        1: ("py-spy", "record", "--nonblocking", "--rate", "20", "--pid", "4242"),
        2: ("py-spy", "dump", "--pid", "4243"),
        3: ("python", "record", "--pid", "4244"),
        4: (),
        5: ("py-spy", "record", "--pid", "9" * 5000),
        6: ("py-spy", "record", "--pid", "\u0663"),
    }
    monkeypatch.setattr(ProcessTable, "pids", lambda table: set(commands))
    monkeypatch.setattr(processes, "command_line", commands.__getitem__)
    monkeypatch.setattr(processes, "owner_uid", lambda pid: 1000)
    assert ProcessTable().recorded() == {4242}


def test_who_may_not_trace_a_process_cannot_claim_to_record_it(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {1: 1000, 2: 1001, 3: 0, 10: 1000, 20: 1000, 30: 1000}
    monkeypatch.setattr(ProcessTable, "pids", lambda table: {1, 2, 3})
    monkeypatch.setattr(processes, "command_line", lambda pid: ("py-spy", "record", "--pid", str(10 * pid)))
    monkeypatch.setattr(processes, "owner_uid", owners.get)
    assert ProcessTable().recorded() == {10, 30}


def test_descendants_are_counted_however_deep_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "children", lambda pid: [pid + 1, 3] if pid < 5000 else [])
    assert ProcessTable().descendants(1) == set(range(2, 5001))


def test_a_process_that_hangs_in_the_kernel_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wakes, asked = threading.Event(), []

    def hang(pid: int) -> str:
        asked.append(pid)
        wakes.wait()
        return ""

    monkeypatch.setattr(processes, "maps", hang)
    table = ProcessTable()
    table._reads = Reads(deadline_s=0.01)
    assert [table.look(os.getpid()) for _ in range(3)] == [None] * 3
    assert until(lambda: asked, "the read to begin") == [os.getpid()]
    wakes.set()


def test_descendants_and_parents_are_known(script: Path) -> None:
    with running(script) as process:
        table = ProcessTable()
        assert process.pid in table.descendants(os.getpid())
        program = table.program(process.pid)
        assert program is not None
        assert (program.parent, program.uid) == (os.getpid(), os.getuid())
    assert table.program(process.pid) is None
