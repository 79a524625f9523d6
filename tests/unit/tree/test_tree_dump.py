"""The stacks of a process tree: who is looked at, and which stacks are one."""

from __future__ import annotations

import pytest
from support.fakesystem import FakeProcess, FakeSystem

from profd.daemon import processes
from profd.daemon.errors import NoSuchProcess
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread, DumpFailed
from profd.daemon.tree import tree
from profd.daemon.tree.tree import DumpedProcess, MergedStack, dump_tree, merge

TRAIN, LOAD, PIN = (
    DumpedFrame(name, "/home/ada/train.py", line) for name, line in (("step", 4), ("load", 7), ("pin", 9))
)


def thread(name: str | None, *frames: DumpedFrame, active: bool = False, gil: bool = False) -> DumpedThread:
    return DumpedThread(1, 1, name, active=active, owns_gil=gil, frames=frames)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> FakeSystem:
    """Give a training with a worker, a shell, and a worker below that which py-spy cannot read."""
    below = {
        1: FakeProcess(children=[2, 3]),
        2: FakeProcess(),
        3: FakeProcess(python=None, children=[4]),
        4: FakeProcess(),
    }
    system = FakeSystem(below)

    def dump(pid: int) -> tuple[DumpedThread, ...]:
        if pid == 4:
            raise DumpFailed("it moved")
        return (thread("MainThread", TRAIN),)

    monkeypatch.setattr(tree, "check_attachable", lambda pid: None)
    monkeypatch.setattr(tree, "Rights", lambda: system)
    monkeypatch.setattr(tree, "take_dump", dump)
    monkeypatch.setattr(processes, "python_version", system.python_version)
    monkeypatch.setattr(processes, "command_line", lambda pid: ("python", "train.py", "--api-key=s3cret"))
    return system


@pytest.mark.usefixtures("system")
def test_all_of_the_tree_that_is_python_is_looked_at() -> None:
    found = dump_tree(1)
    assert [process.pid for process in found] == [1, 2, 4]
    assert [process.error for process in found] == ["", "", "it moved"]
    assert [len(process.threads) for process in found] == [1, 1, 0]


@pytest.mark.usefixtures("system")
def test_secrets_of_commands_are_not_shown() -> None:
    assert all("s3cret" not in " ".join(process.command) for process in dump_tree(1))


@pytest.mark.usefixtures("system")
def test_a_process_that_cannot_be_looked_at_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> None:
        raise NoSuchProcess(f"there is no process {pid}", "")

    monkeypatch.setattr(tree, "check_attachable", refuse)
    with pytest.raises(NoSuchProcess):
        dump_tree(1)


def test_equal_stacks_are_one_with_main_threads_first_then_the_most_owners() -> None:
    dumped = [
        DumpedProcess(1, ("python",), (thread("Pin", PIN), thread("MainThread", LOAD, TRAIN, gil=True))),
        DumpedProcess(
            2, ("python",), (thread("A", LOAD), thread(None, LOAD), thread("MainThread", LOAD, TRAIN, active=True))
        ),
        DumpedProcess(3, ("python",), error="gone"),
    ]
    assert merge(dumped) == [
        MergedStack(("pid 1 MainThread (GIL)", "pid 2 MainThread (active)"), (LOAD, TRAIN)),
        MergedStack(("pid 2 A", "pid 2 thread"), (LOAD,)),
        MergedStack(("pid 1 Pin",), (PIN,)),
    ]
