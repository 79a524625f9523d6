"""The processes of a host: which are Python, and when each is looked at."""

from __future__ import annotations

import itertools
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.clocks import StoppedClock
from support.hostfakes import UID, FakeTable
from support.present import there
from support.sessions import running
from support.waiting import until

from profd.daemon import processes
from profd.daemon.boundedreads import BoundedReads, Unread
from profd.daemon.processes import user_name
from profd.daemon.service import scanner as subjects
from profd.daemon.service.configuration import Configuration, Exclusion, JobRule
from profd.daemon.service.scanner import HostProcesses, ProcessInfo, ProcessScanner, matching_rule


def subject(*command: str, torch: bool = False, gpu: bool = False, uid: int = UID) -> ProcessInfo:
    table = FakeTable()
    table.add(7, *command, torch=torch, gpu=gpu, uid=uid)
    return table.subjects[7]


def matched(one: ProcessInfo, *rules: JobRule, exclude: tuple[Exclusion, ...] = ()) -> str | None:
    found = matching_rule(Configuration(rule=rules, exclude=exclude), one)
    return found.name if found else None


@pytest.mark.parametrize(
    ("rule", "meets"),
    [
        *(
            (JobRule("r", torch=True), False),
            (JobRule("r", gpu=True), True),
            (JobRule("r", command=r"train\.py"), True),
        ),
        *((JobRule("r", command=r"^train"), False), (JobRule("r", command="--lr 1"), True)),
        *(
            (JobRule("r", gpu=True, users=(str(UID),)), True),
            (JobRule("r", gpu=True, users=("4711",)), False),
        ),
        (JobRule("r", gpu=True, torch=True), False),
    ],
)
def test_all_that_a_rule_says_has_to_hold(rule: JobRule, meets: bool) -> None:
    assert matched(subject("python", "train.py", "--lr", "1", gpu=True), rule) == (
        "r" if meets else None
    )


def test_users_are_names_or_numbers_and_exclusions_come_before_the_rule_of_the_least_age() -> None:
    mine = subject(torch=True, uid=os.getuid())
    for user in (user_name(os.getuid()), str(os.getuid())):
        assert matched(mine, JobRule("r", torch=True, users=(user,))) == "r"
    notebook = subject("python", "-m", "ipykernel", torch=True)
    rule = JobRule("r", torch=True)
    assert matched(notebook, rule, exclude=(Exclusion(command="ipykernel"),)) is None
    assert (
        matched(notebook, rule, exclude=(Exclusion(command="ipykernel", users=("4711",)),)) == "r"
    )
    one = subject(torch=True)
    assert (
        matched(
            one, JobRule("late", torch=True, min_age_s=60), JobRule("soon", torch=True, min_age_s=1)
        )
        == "soon"
    )


def looks_of(
    table: FakeTable, scanner: ProcessScanner, clock: StoppedClock, seconds: int
) -> list[int]:
    """Return at which of the following seconds anybody was looked at."""
    found = []
    for second in range(seconds):
        table.looks.clear()
        scanner.poll()
        if table.looks:
            found.append(second)
        clock.advance(1)
    return found


def test_a_process_is_looked_at_the_less_often_the_older_it_grows() -> None:
    table, clock = FakeTable(), StoppedClock()
    table.add(7)
    seconds = looks_of(table, ProcessScanner(table, clock), clock, 600)
    assert seconds[:6] == [0, 1, 2, 3, 5, 8]
    assert max(later - sooner for sooner, later in itertools.pairwise(seconds)) == 60
    assert len(seconds) < 25
    table.ages[7] = 5000.0
    assert looks_of(table, ProcessScanner(table, clock), clock, 300) == [0, 60, 120, 180, 240]


def test_new_processes_of_python_are_found_at_the_next_look_and_settled_ones_when_asked_for() -> (
    None
):
    table, clock = FakeTable(), StoppedClock()
    scanner = ProcessScanner(table, clock)
    assert scanner.poll() == []
    table.add(7)
    table.add(8, "bash", python=False)
    assert [subject.identity.pid for subject in scanner.poll()] == [7]
    scanner.settle(7)
    table.remove(8)
    assert looks_of(table, scanner, clock, 300) == []
    scanner.look_again(7, 5.0)
    assert looks_of(table, scanner, clock, 6) == [5]
    scanner.settle(7)
    table.remove(7)
    scanner.poll()
    table.add(7)  # the PID is used again
    assert len(scanner.poll()) == 1


WAITING = "import time\nprint('ready', flush=True)\ninput()\n"
MAPPING = (
    "import mmap\nwith open('{file}', 'r+b') as opened:\n    held = mmap.mmap(opened.fileno(), 0)\n"
)


def test_a_python_process_is_found_with_its_command_and_its_parent(tmp_path: Path) -> None:
    script, table = tmp_path / "train.py", HostProcesses()
    script.write_text(WAITING)
    with running(script, "--lr", "1") as process:
        found = there(table.look(process.pid))
        assert process.pid in table.descendants(os.getpid())
        program = there(table.program(process.pid))
        assert (program.parent, program.uid) == (os.getpid(), os.getuid())
    assert table.program(process.pid) is None
    assert found.identity.pid == process.pid
    assert found.command[-3:] == (str(script), "--lr", "1")
    assert (found.parent, found.uid, found.uses_torch, found.uses_gpu) == (
        os.getpid(),
        os.getuid(),
        False,
        False,
    )
    assert 0 <= found.age_s < 60


@pytest.mark.parametrize(
    ("mapped", "torch", "gpu"),
    [("libtorch_cpu.so", True, False), ("nothing", False, False), ("nvidia0", False, True)],
)
def test_torch_and_gpus_are_recognized_by_mapped_files(
    monkeypatch: pytest.MonkeyPatch, mapped: str, torch: bool, gpu: bool, tmp_path: Path
) -> None:
    monkeypatch.setattr(subjects, "_GPU_DEVICE", str(tmp_path / "nvidia0"))
    (tmp_path / mapped).write_bytes(bytes(mmap.PAGESIZE))
    script = tmp_path / "train.py"
    script.write_text(MAPPING.format(file=tmp_path / mapped) + WAITING)
    with running(script) as process:
        found = there(HostProcesses().look(process.pid))
    assert (found.uses_torch, found.uses_gpu) == (torch, gpu)


def test_other_programs_and_profds_own_sessions_are_not_found() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert HostProcesses().look(process.pid) is None
        assert process.pid in HostProcesses().pids()
        process.kill()
    assert HostProcesses().look(process.pid) is None
    words = [sys.executable, "-m", "profd.daemon.session"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as own:
        assert HostProcesses().look(own.pid) is None
        own.kill()


def test_a_program_with_python_in_it_is_found_and_others_soon_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embedding, other = os.getpid(), os.getppid()
    asked: list[int] = []

    def maps(pid: int) -> str:
        asked.append(pid)
        file = "libpython3.11.so.1.0" if pid == embedding else "libc.so"
        return f"7f00-7f01 r-xp 0 08:01 1 /usr/lib/{file}\n"

    monkeypatch.setattr(processes, "maps", maps)
    monkeypatch.setattr(
        "profd.daemon.elf.python_in", lambda file: None
    )  # the true programs may have one
    monkeypatch.setattr(processes, "link", lambda pid, name: "/usr/bin/server")
    table = HostProcesses()
    assert table.look(embedding) is not None
    assert [table.look(other) for _ in range(9)] == [None] * 9
    assert asked.count(other) == 5
    monkeypatch.setattr(
        processes, "link", lambda pid, name: "/usr/bin/python3.11"
    )  # it has become another program
    table.look(other)
    assert asked.count(other) == 6


def test_a_recording_is_known_by_its_command_and_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {
        1: ("py-spy", "record", "--nonblocking", "--rate", "20", "--pid", "4242"),
        2: ("py-spy", "dump", "--pid", "4243"),
        3: ("python", "record", "--pid", "4244"),
        4: (),
        5: ("py-spy", "record", "--pid", "9" * 5000),
        6: ("py-spy", "record", "--pid", "\u0663"),
        7: ("py-spy", "record", "--pid", "20"),  # its owner may not trace that process
        8: ("py-spy", "record", "--pid", "30"),  # root may
    }
    monkeypatch.setattr(HostProcesses, "pids", lambda table: set(commands))
    monkeypatch.setattr(processes, "command_line", commands.__getitem__)
    monkeypatch.setattr(processes, "owner_uid", lambda pid: {7: 1001, 8: 0}.get(pid, 1000))
    assert HostProcesses().recorded() == {4242, 30}


def test_descendants_are_counted_however_deep_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "children", lambda pid: [pid + 1, 3] if pid < 5000 else [])
    assert HostProcesses().descendants(1) == set(range(2, 5001))


def test_a_process_that_hangs_in_the_kernel_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wakes, asked = threading.Event(), []

    def hang(pid: int) -> str:
        asked.append(pid)
        wakes.wait()
        return ""

    monkeypatch.setattr(processes, "maps", hang)
    table = HostProcesses()
    table._reads = BoundedReads(deadline_s=0.01, user_s=60.0)
    for _ in range(3):
        table.begin_turn()
        with pytest.raises(Unread):
            table.look(os.getpid())
    assert until(lambda: asked, "the read to begin") == [os.getpid()]
    wakes.set()


class SlowTable(FakeTable):
    """A table whose processes cannot be read while they are in ``slow``."""

    slow: frozenset[int] = frozenset()

    def look(self, pid: int) -> ProcessInfo | None:
        found = super().look(pid)
        if pid in self.slow:
            raise Unread
        return found


def test_what_could_not_be_read_is_looked_at_again_soon_and_after_the_others() -> None:
    table, clock = SlowTable(), StoppedClock()
    for pid in (7, 8, 9):
        table.add(pid, torch=True)
        table.ages[pid] = 5000.0
    table.slow = frozenset({7, 8})
    scanner = ProcessScanner(table, clock)
    assert [one.identity.pid for one in scanner.poll()] == [9]
    table.looks = []
    scanner.poll()
    assert table.looks == []  # others come first, if there are any
    clock.advance(1)
    table.slow, table.looks = frozenset({7}), []
    table.add(10, torch=True)
    table.ages[10] = 5000.0
    assert sorted(one.identity.pid for one in scanner.poll()) == [8, 10]
    assert table.looks[:2] == [7, 8]
    clock.advance(1)
    table.slow, table.looks = frozenset(), []
    assert [one.identity.pid for one in scanner.poll()] == [7]


def test_what_root_cannot_read_in_time_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is not read is none.

    A job whose launcher is not read is not begun, but looked at again.
    """

    def give_up(pid: int) -> tuple[str, ...]:
        raise Unread

    monkeypatch.setattr(processes, "command_line", give_up)
    assert HostProcesses().recorded() == set()
    with pytest.raises(Unread):
        HostProcesses().program(os.getpid())
