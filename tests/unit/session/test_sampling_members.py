"""Who is recorded: what is taken in of processes that come and go, without a process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.clocks import StoppedClock

from profd.daemon.session.budget import Governor
from profd.daemon.session.sampling import Members, Sampling
from profd.daemon.store.records import (
    EventHappened,
    Frame,
    Identity,
    Placement,
    ProcessEnded,
    ProcessSeen,
    Record,
    RecordingTaken,
    ThreadTimeline,
)
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Change, Member, ProcessTree

ROOT, CHILD = Identity(10, 100), Identity(11, 110)
KILLED = 9
WORKER_STACK = (Frame("_worker_loop", "/lib/torch/utils/data/_utils/worker.py", 1),)


class ScriptedTree(ProcessTree):
    """A tree that changes as it is told."""

    def __init__(self, clock: StoppedClock) -> None:
        super().__init__(ROOT, tuple, clock)
        self.changes: list[Change] = []

    def poll(self) -> list[Change]:
        """Return the changes that were told, and have them in ``members``."""
        changes, self.changes = self.changes, []
        for change in changes:
            if change.kind == "ended":
                self.members.pop(change.member.identity, None)
            else:
                self.members[change.member.identity] = change.member
        return changes


class Stage:
    """Members of a tree that changes as it is told, and what they write. What they are sampled with does not exist."""

    def __init__(self) -> None:
        clock = StoppedClock()
        self.written: list[Record] = []
        self.tree = ScriptedTree(clock)
        sampling = Sampling("/nowhere/py-spy", Governor(100, 1.0), clock, self.written.append)
        self.members = Members(self.tree, sampling, None, clock, self.written.append)

    def look(self, *changes: Change) -> None:
        self.tree.changes = list(changes)
        self.members.look()

    def events(self) -> list[str]:
        return [record.text for record in self.written if isinstance(record, EventHappened)]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def member(identity: Identity, command: Sequence[str] = ("sleep", "9"), role: str = roles.HELPER) -> Member:
    """Return a process that is no Python, so that nothing is sampled."""
    return Member(identity, None if identity == ROOT else ROOT, tuple(command), role, None, None, None, 1)


def recording(identity: Identity, *os_tids: int) -> RecordingTaken:
    threads = tuple(ThreadTimeline(os_tid, "t", is_main=False, intervals=()) for os_tid in os_tids)
    return RecordingTaken(identity, 0, 1, 100, 1, 0, 0, 0, 0, (WORKER_STACK,), threads)


def test_who_comes_changes_and_ends_is_written(stage: Stage) -> None:
    child = member(CHILD)
    stage.look(Change("started", member(ROOT, role=roles.MAIN)), Change("started", child))
    child.command = ("true",)
    stage.look(Change("exec", child))
    stage.look(Change("ended", child, KILLED))
    assert stage.events() == [
        "main 10: sleep 9",
        "helper 11: sleep 9",
        "process 11 became true",
        "helper 11 was ended by SIGKILL",
    ]
    assert [record.identity for record in stage.written if isinstance(record, ProcessSeen)] == [ROOT, CHILD, CHILD]
    assert [record.exit_signal for record in stage.written if isinstance(record, ProcessEnded)] == [9]


def test_the_place_of_a_rank_in_its_job_is_said(stage: Stage) -> None:
    ranked = member(CHILD, role=roles.MAIN)
    ranked.placement = Placement(5, 1, 1, 8)
    stage.look(Change("started", ranked))
    assert stage.events() == ["main 11 (rank 5 of 8, local rank 1 on node 1): sleep 9"]


def test_how_the_root_ended_is_kept_and_told_by_others(stage: Stage) -> None:
    stage.look(Change("started", member(ROOT)))
    stage.look(Change("ended", member(ROOT), KILLED))
    assert stage.members.root_status == KILLED
    assert stage.events() == ["helper 10: sleep 9"]


def test_threads_are_those_of_the_last_recording(stage: Stage) -> None:
    stage.look(Change("started", member(CHILD)))
    stage.members.take_recording(recording(CHILD, 11, 12))
    stage.members.take_recording(recording(CHILD, 11, 13))
    assert stage.members.python_threads == {CHILD: {11, 13}}


def test_nothing_is_held_of_workers_that_ended_before_their_last_recording_came(stage: Stage) -> None:
    for number in range(100):
        worker = member(Identity(1000 + number, 7))
        stage.look(Change("started", worker))
        stage.members.take_recording(recording(worker.identity, worker.identity.pid))
        stage.look(Change("ended", worker, 0))
        stage.members.take_recording(recording(worker.identity, worker.identity.pid))
    assert not stage.members.python_threads


def test_who_turns_out_to_be_a_worker_is_written_again(stage: Stage) -> None:
    stage.look(Change("started", member(CHILD)))
    stage.members.take_recording(recording(CHILD, 11))
    last = [record for record in stage.written if isinstance(record, ProcessSeen)][-1]
    assert (last.role, last.ordinal) == (roles.WORKER, 1)


def test_at_the_end_nobody_is_begun(stage: Stage) -> None:
    stage.tree.changes = [Change("started", member(CHILD)), Change("ended", member(ROOT), 0)]
    stage.members.look_at_end()
    assert [type(record).__name__ for record in stage.written] == ["ProcessEnded"]
