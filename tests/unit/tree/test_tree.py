"""A tree of real, short-lived processes: what comes, goes and changes is noticed at the next look."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from msgspec.structs import replace
from support.clocks import StoppedClock
from support.fakesystem import FakeProcess, FakeSystem
from support.present import there
from support.synthetic import identity_of
from support.training_stacks import BACKWARD, CONV, DEFORM, WORKER_STEP

from profd.daemon import processes
from profd.daemon.boundedreads import BoundedReads
from profd.daemon.clock import Clock
from profd.daemon.errors import NoSuchProcess
from profd.daemon.events import EventKind
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread, DumpFailed
from profd.daemon.store.records import Frame, Identity, Placement
from profd.daemon.tree import roles, tree
from profd.daemon.tree.exitstatus import ProcessWatch
from profd.daemon.tree.tree import (
    FULL_SCAN_EVERY,
    DumpedProcess,
    MergedStack,
    ProcessChange,
    ProcessTree,
    dump_tree,
    merge,
)
from profd.daemon.tree.unread import Reason

STARTING = (
    *CONV[:3],
    Frame("DataLoader._get_iterator", "/venv/torch/utils/data/dataloader.py", 435),
    Frame("Popen._launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 66),
)

# Obeys orders, one a line, and answers each with a line; its children do the same.
OBEDIENT = """
import os, sys
def say(word): os.write(1, (str(word) + "\\n").encode())
def obey(lines):
    for line in lines:
        order, _, argument = line.strip().partition(" ")
        if order == "fork":
            pid = os.fork()
            if not pid:
                obey(iter(os.fdopen(os.open(argument, os.O_RDONLY)).readline, ""))
                os._exit(0)
            say(pid)
        elif order == "thread":
            import threading
            threading.Thread(target=lambda: (obey([argument]), threading.Event().wait())).start()
        elif order == "set":
            name, _, value = argument.partition("=")
            os.environ[name] = value
            say("set")
        elif order == "exec":
            os.execv("/bin/sh", ["sh", "-c", "echo done; read x", "secret"])
        elif order == "exit":
            os._exit(int(argument))
say("ready")
obey(iter(sys.stdin.readline, ""))
"""


class Obedient:
    """A process that forks, execs and exits on order."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", OBEDIENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **(environment or {})},
        )
        assert self.hear() == "ready"
        self.identity = identity_of(self.process.pid)
        self.descendants: list[int] = []

    def hear(self) -> str:
        said = there(self.process.stdout)
        assert select.select([said], [], [], 60)[0], "no answer"
        return said.readline().decode().strip()

    def tell(self, order: str) -> None:
        there(self.process.stdin).write(f"{order}\n".encode())

    def fork(self, fifo: str, by: str = "fork") -> int:
        self.tell(f"{by} {fifo}")
        pid = int(self.hear())
        self.descendants.append(pid)
        return pid

    def close(self) -> None:
        for pid in self.descendants:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def root() -> Iterator[Obedient]:
    with contextlib.closing(Obedient()) as started:
        yield started


@pytest.fixture
def fifo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Make the pipe by which a forked child gets its orders."""
    path = str(tmp_path_factory.mktemp("orders") / "orders")
    os.mkfifo(path)
    keeper = os.open(path, os.O_RDWR)
    yield path
    os.close(keeper)


def watch(
    root: Identity,
    *,
    subprocesses: bool = True,
    is_polled: bool = False,
    clock: Clock | None = None,
) -> ProcessTree:
    def mask(words: Sequence[str]) -> tuple[str, ...]:
        return tuple(word.replace("secret", "***") for word in words)

    watched = ProcessTree(root, mask, clock or Clock(), subprocesses=subprocesses)
    if is_polled:
        watched.poll()
    return watched


def look_often(tree: ProcessTree) -> list[ProcessChange]:
    """Look as often as it takes to see the children of all threads."""
    return [change for _ in range(FULL_SCAN_EVERY) for change in tree.poll()]


class Hanging:
    """Memory of processes that hangs while it is set: what is read of it comes once it is no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tree: ProcessTree) -> None:
        self._answers, self._read = threading.Event(), processes.command_line
        self._tree = tree
        monkeypatch.setattr(processes, "command_line", self._command_line)

    def _command_line(self, pid: int) -> tuple[str, ...]:
        self._answers.wait()
        return self._read(pid)

    def end(self) -> None:
        self._answers.set()
        for _, reader in self._tree.reads._stuck.values():
            reader.join()
        self._tree.reads = BoundedReads()  # without a deadline that a busy machine may pass

    def begin(self) -> None:
        self._answers.clear()
        self._tree.reads = BoundedReads(deadline_s=0.01)


def test_a_process_that_hangs_holds_up_nothing_and_is_read_once_it_does_not(
    root: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = watch(root.identity)
    hanging = Hanging(monkeypatch, tree)
    hanging.begin()
    assert [*tree.poll(), *tree.poll(), *tree.members] == []
    hanging.end()
    assert [change.kind for change in tree.poll()] == ["started"]
    root.tell("exec")
    assert root.hear() == "done"
    hanging.begin()
    assert tree.poll() == []
    before_ns = tree._before_ns
    assert tree.poll() == []
    hanging.end()
    begun: list[int | None] = []
    monkeypatch.setattr(
        "profd.daemon.tree.tree.origin_of", lambda _, exec_ns, __: begun.append(exec_ns)
    )
    (change,) = tree.poll()
    assert (change.kind, change.member.command[:1], change.member.exec_ns) == ("exec", ("sh",), 0)
    assert begun == [before_ns]  # what was written since then is not what it runs


def test_the_root_appears_once_and_its_stacks_change_nothing(root: Obedient) -> None:
    assert (
        watch(Identity(root.identity.pid, root.identity.start_ticks - 1)).poll() == []
    )  # another one with its PID
    tree = watch(root.identity)
    (change,) = tree.poll()
    assert change.kind == EventKind.STARTED
    member = change.member
    assert (member.identity, member.parent, member.role) == (root.identity, None, roles.MAIN)
    assert member.command[-1] == OBEDIENT.replace("secret", "***")
    assert member.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert tree.poll() == []
    tree.poll()
    assert tree.take_stacks(root.identity, [DEFORM]) == []
    assert tree.take_stacks(Identity(1, 1), [DEFORM]) == []


def refuse(pid: int) -> int:
    """Stand for the kernel where no descriptor is left, or a handle is unknown."""
    raise OSError(errno.EMFILE, f"no handle on {pid}")


@pytest.mark.parametrize("has_handles", [True, False])
def test_a_child_appears_below_its_parent_and_vanishes(
    root: Obedient, fifo: str, monkeypatch: pytest.MonkeyPatch, *, has_handles: bool
) -> None:
    tree = watch(root.identity, is_polled=True)
    pid = root.fork(fifo)
    with monkeypatch.context() as patched:
        if not has_handles:
            patched.setattr(os, "pidfd_open", refuse)
        (appeared,) = tree.poll()
    assert appeared.kind == "started"
    assert (appeared.member.identity.pid, appeared.member.parent) == (pid, root.identity)
    assert appeared.member.role == roles.HELPER
    with contextlib.closing(ProcessWatch(appeared.member.identity)) as gone:
        with open(fifo, "w") as orders:  # noqa: PTH123
            orders.write("exit 7\n")
        select.select([gone], [], [], 60)
    assert tree.poll() == [ProcessChange(EventKind.ENDED, appeared.member, 7 << 8)]
    assert tree.poll() == []


def test_children_and_grandchildren_appear_at_the_first_look_parents_first(
    root: Obedient, fifo: str
) -> None:
    child = root.fork(fifo)
    with open(fifo, "w") as orders:  # noqa: PTH123
        orders.write(f"fork /dev/null\nfork {fifo}\n")
    root.hear()
    grandchild = int(root.hear())
    root.descendants.append(grandchild)
    found = [change.member.identity.pid for change in watch(root.identity).poll()]
    assert [pid for pid in found if pid in (child, grandchild)] == [child, grandchild]
    assert found[0] == root.identity.pid


def test_a_child_whose_parent_is_gone_stays(root: Obedient, fifo: str) -> None:
    pid = root.fork(fifo)
    tree = watch(root.identity, is_polled=True)
    root.process.kill()
    root.process.wait()
    (vanished,) = tree.poll()
    assert vanished.kind == "ended"
    assert vanished.member.identity == root.identity
    assert [identity.pid for identity in tree.members] == [pid]
    assert look_often(tree) == []


def test_a_child_of_a_thread_appears_at_the_next_full_look_where_subprocesses_count(
    root: Obedient, fifo: str
) -> None:
    tree = watch(root.identity, is_polled=True)
    pid = root.fork(fifo, "thread fork")
    assert [change.member.identity.pid for change in look_often(tree)] == [pid]
    tree = watch(root.identity, subprocesses=False)
    assert [change.member.identity for change in look_often(tree)] == [root.identity]


def test_exec_is_noticed_and_makes_another_process_of_it(root: Obedient) -> None:
    clock = StoppedClock()
    tree = watch(root.identity, is_polled=True, clock=clock)
    polled_ns = clock.now_ns()
    clock.advance(1)
    root.tell("exec")
    assert root.hear() == "done"
    (change,) = tree.poll()
    assert change.kind == EventKind.EXEC
    assert change.member.origin.since_ns == polled_ns
    assert change.member.command == ("sh", "-c", "echo done; read x", "***")
    assert (change.member.python, change.member.role) == (None, roles.LAUNCHER)
    assert tree.poll() == []


def test_a_process_that_dies_slowly_has_not_become_another_one(
    root: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = watch(root.identity, is_polled=True)
    dying = msgspec.structs.replace(
        there(processes.read_stat(root.identity.pid)), state="R", image=0
    )
    monkeypatch.setattr(processes, "read_stat", lambda pid: dying)
    assert tree.poll() == []
    assert tree.members[root.identity].command[-1] == OBEDIENT.replace("secret", "***")


def test_another_process_under_the_pid_of_a_member_is_no_member(
    root: Obedient, fifo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = root.fork(fifo)
    tree = watch(root.identity, is_polled=True)
    stat = there(processes.read_stat(pid))
    stranger = msgspec.structs.replace(stat, start_ticks=stat.start_ticks + 1, exit_status=9)
    real = processes.read_stat
    monkeypatch.setattr(
        processes, "read_stat", lambda wanted: stranger if wanted == pid else real(wanted)
    )
    monkeypatch.setattr(processes, "children", lambda pid, of_all_threads: [])
    (vanished,) = tree.poll()
    assert vanished.kind == "ended"
    assert vanished.exit_status is None


def test_a_process_that_goes_between_two_reads_is_taken_as_is(
    root: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "command_line", lambda pid: ())
    monkeypatch.setattr(processes, "python_version", lambda pid: None)
    monkeypatch.setattr(processes, "environment", lambda pid, allowed: {})
    monkeypatch.setattr(processes, "children", lambda pid, of_all_threads: [2**22 + 1])
    tree = watch(root.identity)
    (change,) = tree.poll()
    assert (change.member.command, change.member.role) == ((), roles.LAUNCHER)


def test_a_program_that_loads_python_later_is_met_as_one(
    root: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        processes, "python_version", lambda pid: asked.append(pid) if len(asked) < 4 else "3.12"
    )
    tree = watch(root.identity)
    (change,) = tree.poll()
    assert (change.kind, change.member.role) == ("started", roles.LAUNCHER)
    changes = [change for _ in range(16) for change in tree.poll()]
    assert [(change.kind, change.member.role, change.member.python) for change in changes] == [
        ("loaded", roles.MAIN, "3.12")
    ]
    assert (
        len(asked) == 4
    )  # with its start, and with the 1st, 2nd and 4th look; the others are not read


def test_rank_is_that_of_the_environment_and_goes_down_to_children(fifo: str) -> None:
    with contextlib.closing(Obedient({"RANK": "3", "LOCAL_RANK": "1"})) as ranked:
        ranked.fork(fifo)
        members = [change.member for change in watch(ranked.identity).poll()]
        assert [member.rank for member in members] == [3, 3]
        assert [member.placement for member in members] == [Placement(3, 1), None]


def test_a_rank_that_a_process_sets_itself_is_learned_with_a_recording(root: Obedient) -> None:
    tree = watch(root.identity)
    (started,) = tree.poll()
    assert tree.take_stacks(root.identity, [DEFORM]) == []
    root.tell("set RANK=3")
    assert root.hear() == "set"
    assert tree.take_stacks(root.identity, [DEFORM]) == [started.member]
    assert (started.member.rank, tree.record_of(started.member).placement) == (3, Placement(3))
    assert tree.take_stacks(root.identity, [DEFORM]) == []


def test_of_two_siblings_that_say_the_same_rank_one_has_it(
    root: Obedient, fifo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.fork(fifo)
    root.fork(fifo)
    watched = watch(root.identity)
    _, *children = [change.member for change in watched.poll()]
    monkeypatch.setattr(tree, "variables_now", lambda pid, allowed: {"RANK": "0"})
    for _ in range(2):
        for member in children:
            watched.take_stacks(member.identity, [BACKWARD])
    assert [(member.role, member.rank) for member in children] == [
        (roles.MAIN, 0),
        (roles.MAIN, None),
    ]


SPAWNED_RANK = (
    Frame("_wrap", "/venv/torch/multiprocessing/spawn.py", 95),
    Frame("forward", "/venv/torch/nn/parallel/distributed.py", 1700),
    *BACKWARD,
)


def test_spawned_ranks_have_the_numbers_that_they_were_given_and_so_has_what_they_started(
    root: Obedient, fifo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        root.fork(fifo)
    watched = watch(root.identity)
    _, *children = [change.member for change in watched.poll()]
    first, second, same = (member.identity for member in children)
    numbers = {first.pid: 1, second.pid: 0, same.pid: 0}
    monkeypatch.setattr(tree, "local_integer", lambda pid, holds, name: numbers[pid])
    child = msgspec.structs.replace(children[0], identity=Identity(2**22, 1), parent=first)
    watched.members[child.identity] = child
    for member in children:
        watched.take_stacks(member.identity, [BACKWARD])
    assert [member.rank for member in children] == [None, None, None]
    assert watched.take_stacks(first, [SPAWNED_RANK]) == [children[0], child]
    for identity in (second, same, first):
        watched.take_stacks(identity, [SPAWNED_RANK])
    assert [member.rank for member in (*children, child)] == [1, 0, None, 1]
    assert watched.take_ranks({same.pid: 2, first.pid: 3}) == [
        children[0],
        child,
        children[2],
    ]  # NCCL knows better
    assert [member.rank for member in (*children, child)] == [3, 0, 2, 3]


def test_a_number_that_cannot_be_read_is_looked_for_less(
    root: Obedient, fifo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.fork(fifo)
    watched, tried = watch(root.identity), list[int]()
    _, child = [change.member for change in watched.poll()]
    watched.take_stacks(child.identity, [BACKWARD])
    monkeypatch.setattr(tree, "local_integer", lambda pid, holds, name: tried.append(child.tries))
    for _ in range(20):
        watched.take_stacks(child.identity, [SPAWNED_RANK])
    assert tried == [1, 2, 4, 8, 16]
    assert watched.record_of(child).rank is None


def test_a_rank_is_looked_for_less_the_longer_there_is_none(
    root: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, looked_at = watch(root.identity), list[int]()
    watched.poll()
    for recording in range(1, 70):

        def look(pid: int, allowed: frozenset[str], recording: int = recording) -> dict[str, str]:
            looked_at.append(recording)
            return {}

        monkeypatch.setattr(tree, "variables_now", look)
        watched.take_stacks(root.identity, [DEFORM])
    assert looked_at == [1, 2, 4, 8, 16, 32, 64]


def test_stacks_make_workers_of_helpers_numbered_among_their_siblings(
    root: Obedient, fifo: str
) -> None:
    root.fork(fifo)
    root.fork(fifo)
    tree = watch(root.identity)
    _, *children = [change.member for change in tree.poll()]
    stacks = [stack for stack, _ in WORKER_STEP]
    for member in children:
        assert tree.take_stacks(member.identity, stacks) == [member]
        assert tree.take_stacks(member.identity, stacks) == []
    assert [(member.role, member.ordinal) for member in children] == [
        (roles.WORKER, 1),
        (roles.WORKER, 2),
    ]
    record = tree.record_of(children[1])
    assert (record.role, record.ordinal, record.parent) == (roles.WORKER, 2, root.identity)


def test_what_a_training_forks_once_it_was_seen_to_start_workers_is_one_until_its_stacks_deny_it(
    root: Obedient, fifo: str
) -> None:
    tree = watch(root.identity)
    (main,) = [change.member for change in tree.poll()]
    root.fork(fifo)
    (unknown,) = [change.member for change in tree.poll()]
    assert unknown.role == roles.HELPER
    tree.take_stacks(main.identity, [STARTING])
    root.fork(fifo)
    root.fork(fifo)
    first, second = (change.member for change in tree.poll())
    assert [(one.role, one.ordinal) for one in (first, second)] == [
        (roles.WORKER, 1),
        (roles.WORKER, 2),
    ]
    assert tree.take_stacks(first.identity, [WORKER_STEP[0][0]]) == []
    # Its last stacks are those of its end.
    assert tree.take_stacks(first.identity, [CONV]) == []
    assert tree.take_stacks(second.identity, []) == []
    assert tree.take_stacks(second.identity, [CONV]) == [second]
    assert (second.role, second.ordinal) == (roles.HELPER, None)


def test_workers_that_follow_on_others_between_two_looks_take_their_numbers(
    root: Obedient, fifo: str
) -> None:
    tree = watch(root.identity)
    (main,) = [change.member for change in tree.poll()]
    tree.take_stacks(main.identity, [STARTING])
    for _ in range(3):
        pid = root.fork(fifo)
        *_, born = tree.poll()
        assert (born.kind, born.member.role, born.member.ordinal) == (
            EventKind.STARTED,
            roles.WORKER,
            1,
        )
        os.kill(pid, signal.SIGKILL)
        while processes.read_running(*born.member.identity) is not None:
            pass


def test_children_that_train_are_mains_and_what_started_them_is_a_launcher(
    root: Obedient, fifo: str
) -> None:
    root.fork(fifo)
    root.fork(fifo)
    tree = watch(root.identity)
    parent, *children = [change.member for change in tree.poll()]
    assert {member.role for member in children} == {roles.HELPER}
    assert tree.take_stacks(children[0].identity, [CONV]) == []
    assert tree.take_stacks(children[0].identity, [BACKWARD]) == [children[0], parent]
    assert tree.take_stacks(children[1].identity, [BACKWARD]) == [children[1]]
    assert [(member.role, member.ordinal) for member in (parent, *children)] == [
        (roles.LAUNCHER, None),
        (roles.MAIN, 1),
        (roles.MAIN, 2),
    ]
    root.fork(fifo)
    (started,) = tree.poll()
    assert (
        started.member.role == roles.HELPER
    )  # it may load data for an evaluation that comes after the training
    assert tree.take_stacks(root.identity, [BACKWARD]) == [parent]
    assert (parent.role, tree.take_stacks(started.member.identity, [BACKWARD])) == (roles.MAIN, [])


def test_workers_of_a_pool_that_train_are_mains(root: Obedient, fifo: str) -> None:
    root.fork(fifo)
    root.fork(fifo)
    tree = watch(root.identity)
    parent, first, second = [change.member for change in tree.poll()]
    of_pool = Frame("worker", "/usr/lib/python3.11/multiprocessing/pool.py", 125)
    assert tree.take_stacks(first.identity, [(of_pool,)]) == [first]
    assert (first.role, first.ordinal) == (roles.WORKER, 1)
    assert tree.take_stacks(second.identity, [(of_pool, *BACKWARD)]) == [second, parent]
    assert tree.take_stacks(first.identity, [(of_pool, *BACKWARD)]) == [first]
    assert [member.role for member in (parent, first, second)] == [
        roles.LAUNCHER,
        roles.MAIN,
        roles.MAIN,
    ]
    assert sorted(there(member.ordinal) for member in (first, second)) == [1, 2]


def test_a_helper_of_a_process_that_trains_stays_one(root: Obedient, fifo: str) -> None:
    root.fork(fifo)
    tree = watch(root.identity)
    _, child = [change.member for change in tree.poll()]
    assert tree.take_stacks(root.identity, [BACKWARD]) == []
    assert tree.take_stacks(child.identity, [BACKWARD]) == []
    assert child.role == roles.HELPER


TRAIN, LOAD, PIN = (
    DumpedFrame(name, "/home/ada/train.py", line)
    for name, line in (("step", 4), ("load", 7), ("pin", 9))
)


def thread(
    name: str | None, *frames: DumpedFrame, active: bool = False, gil: bool = False
) -> DumpedThread:
    return DumpedThread(1, name, active=active, owns_gil=gil, frames=frames)


def test_all_of_the_tree_that_is_python_is_looked_at_where_one_may_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A training with a worker, a shell, and a worker below that which py-spy cannot read.
    shell = FakeProcess(python=None, children=[4])
    system = FakeSystem(
        {1: FakeProcess(children=[2, 3]), 2: FakeProcess(), 3: shell, 4: FakeProcess()}
    )

    def dump(pid: int) -> tuple[DumpedThread, ...]:
        if pid == 4:
            raise DumpFailed("it moved")
        return (thread("MainThread", TRAIN),)

    def refuse(pid: int) -> None:
        raise NoSuchProcess(f"there is no process {pid}", "")

    monkeypatch.setattr(tree, "check_attachable", lambda pid: "")
    monkeypatch.setattr(tree, "Rights", lambda: system)
    monkeypatch.setattr(tree, "take_dump", dump)
    monkeypatch.setattr(tree, "why_unread", lambda pid: None)
    monkeypatch.setattr(processes, "python_version", system.python_version)
    monkeypatch.setattr(
        processes, "command_line", lambda pid: ("python", "train.py", "--api-key=s3cret")
    )
    found = dump_tree(1)
    assert [(one.pid, one.error, len(one.threads)) for one in found] == [
        (1, "", 1),
        (2, "", 1),
        (4, "it moved", 0),
    ]
    assert all("s3cret" not in " ".join(process.command) for process in found)
    reason = Reason("it has two interpreters", "have one")
    monkeypatch.setattr(
        tree, "why_unread", {2: reason, 4: reason}.get
    )  # only of those without a frame it is asked
    monkeypatch.setattr(
        tree, "take_dump", lambda pid: (thread("MainThread"),) if pid == 2 else dump(pid)
    )
    assert [one.error for one in dump_tree(1)] == [
        *(
            "",
            "it has two interpreters; have one",
            "it has two interpreters (py-spy: it moved); have one",
        )
    ]
    monkeypatch.setattr(tree, "check_attachable", refuse)
    with pytest.raises(NoSuchProcess):
        dump_tree(1)


def test_equal_stacks_are_one_with_main_threads_first_then_the_most_owners() -> None:
    dumped = [
        DumpedProcess(
            1, ("python",), (thread("Pin", PIN), thread("MainThread", LOAD, TRAIN, gil=True))
        ),
        DumpedProcess(
            2,
            ("python",),
            (thread("A", LOAD), thread(None, LOAD), thread("MainThread", LOAD, TRAIN, active=True)),
        ),
        DumpedProcess(3, ("python",), error="gone"),
        DumpedProcess(4, (), tuple(replace(thread("omp"), native=("wait",)) for _ in range(9))),
        DumpedProcess(5, (), (replace(thread("A", LOAD), native=("wait",), note="it waits"),)),
    ]
    assert merge(dumped) == [
        MergedStack(("pid 1 MainThread (GIL)", "pid 2 MainThread (active)"), (LOAD, TRAIN)),
        MergedStack(("pid 2 A", "pid 2 thread"), (LOAD,)),
        MergedStack(("pid 1 Pin",), (PIN,)),
        MergedStack(("pid 5 A (it waits)",), (LOAD,), ("wait",)),
        MergedStack(("pid 4 omp",) * 9, (), ("wait",)),
    ]


def test_ranks_that_nccl_says_make_mains_of_children_and_a_launcher_of_their_parent(
    root: Obedient, fifo: str
) -> None:
    tree = watch(root.identity, is_polled=True)
    child = root.fork(fifo)
    tree.poll()
    changed = {
        member.identity.pid: (member.role, member.rank) for member in tree.take_ranks({child: 3})
    }
    assert changed == {child: ("main", 3), root.identity.pid: ("launcher", None)}
    assert tree.take_ranks({child: 3}) == []
    # A look at what it says of itself, which is nothing, takes no rank away that would be learned
    # anew.
    (member,) = (one for one in tree.members.values() if one.rank == 3)
    assert tree.take_stacks(member.identity, []) == []
    assert (member.looks, tree.take_ranks({child: 3})) == (1, [])
