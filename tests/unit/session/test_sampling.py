"""Which processes are sampled and how, with made-up chains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import msgspec
import pytest
from support.clocks import StoppedClock
from support.training_stacks import BACKWARD
from support.waiting import settled

from profd.daemon.events import EventKind
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.session import sampling
from profd.daemon.session.budget import Governor
from profd.daemon.session.sampling import Members, Sampling
from profd.daemon.session.stepping import Stepping
from profd.daemon.session.unread import ReadingWatch
from profd.daemon.stacks.chain import SamplingPace
from profd.daemon.stacks.source import Statements
from profd.daemon.stacks.turns import Turns
from profd.daemon.store import records
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member, ProcessChange, ProcessTree


class FakeChain:
    """Runs until it is stopped, or breaks on order."""

    def __init__(
        self,
        executable: str,
        identity: records.Identity,
        pace: Callable[[], SamplingPace],
        source: Statements,
    ) -> None:
        self.identity = identity
        self.pace = pace
        self.source = source
        self.turns: Turns | None = None
        self.hurries = 0
        self.is_in_turns = True
        self.is_deaf = self.is_resting = self.is_recording = False
        self.was_cancelled = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        try:
            await self._over
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    async def run_in_turns(self, turns: Turns) -> None:
        self.turns = turns
        await self.run()

    def hurry(self) -> None:
        self.hurries += 1

    def leave_turns(self) -> None:
        self.is_in_turns = False

    def stop(self) -> None:
        if not self.is_deaf and not self._over.done():
            self._over.set_result(None)

    def fail(self) -> None:
        self._over.set_exception(RuntimeError("no"))


class Studio:
    """A sampling whose chains can be looked at."""

    def __init__(self) -> None:
        self.records: list[records.Record] = []
        self.sampling = Sampling("py-spy", Governor(100, 0.1), StoppedClock(), self.records.append)
        self.chains: list[FakeChain] = []

    async def begin(self, role: str, pid: int = 7) -> FakeChain:
        self.sampling.begin(Member(records.Identity(pid, 1), None, (), role, None, None, "3.11", 1))
        await asyncio.sleep(0)
        return self.chains[-1]


@pytest.fixture
async def studio(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Studio]:
    made = Studio()

    def make(*words: Any) -> FakeChain:  # noqa: ANN401
        made.chains.append(FakeChain(*words[:4]))
        return made.chains[-1]

    monkeypatch.setattr(sampling, "StackChain", make)
    yield made
    await made.sampling.close()


async def test_mains_are_sampled_without_a_gap_and_others_in_turns_with_what_is_known_of_files(
    studio: Studio,
) -> None:
    nobody = 2**22  # no process has such an id: what it would see is what we see
    main, launcher = (
        await studio.begin(roles.MAIN, nobody + 1),
        await studio.begin(roles.LAUNCHER, nobody + 2),
    )
    helper, worker = (
        await studio.begin(roles.HELPER, nobody + 3),
        await studio.begin(roles.WORKER, nobody + 4),
    )
    assert (main.turns, launcher.turns) == (None, None)
    assert helper.turns is worker.turns is not None
    assert main.source is worker.source


@pytest.mark.parametrize("is_recording", [False, True])
async def test_while_a_recording_is_taken_after_a_rest_what_is_left_is_for_it_alone(
    studio: Studio, is_recording: bool
) -> None:
    chain = await studio.begin(roles.MAIN)
    studio.sampling.governor.mean_hz = 3
    chain.is_resting, chain.is_recording = True, is_recording
    assert studio.sampling.grant(0.8) is not is_recording


@pytest.mark.parametrize(
    ("mean_hz", "main_hz", "worker_hz", "rest_ratio"),
    [
        (100, [100, 100], 20, 1),
        (50, [50, 50], 10, 3),
        (20, [20, 20], 4, 9),
        (3, [3, 3], 3, 9),
        (3.5, [3, 4], 3, 9),
    ],
)
async def test_rate_is_the_governors_in_whole_numbers_and_a_part_of_it_and_of_the_time_for_others(
    studio: Studio, mean_hz: float, main_hz: list[int], worker_hz: int, rest_ratio: float
) -> None:
    main, worker = await studio.begin(roles.MAIN, 1), await studio.begin(roles.WORKER, 2)
    studio.sampling.governor.mean_hz = mean_hz
    assert [main.pace().rate_hz for _ in range(4)] == 2 * main_hz
    assert worker.pace().rate_hz == worker_hz
    assert worker.pace().rest_ratio == pytest.approx(rest_ratio)
    assert not main.pace().is_unknown
    assert not worker.pace().is_unknown


async def test_few_helpers_have_more_of_the_rate(studio: Studio) -> None:
    await studio.begin(roles.MAIN, 1)
    helper = await studio.begin(roles.HELPER, 2)
    assert helper.pace().rate_hz == 100
    assert helper.pace().is_unknown
    for pid in range(3, 9):
        await studio.begin(roles.HELPER, pid)
    assert helper.pace().rate_hz == 20


async def test_recordings_are_short_while_someone_watches_with_the_overlap_as_a_part(
    studio: Studio,
) -> None:
    main, worker = await studio.begin(roles.MAIN), await studio.begin(roles.WORKER, 2)
    assert (main.pace().length_s, worker.pace().length_s) == (
        RECORDING.length_s - 0.03,
        RECORDING.length_s - 0.15,
    )
    studio.sampling.governor.mean_hz = 5
    assert main.pace().length_s == RECORDING.steady_length_s - 0.6
    studio.sampling.is_watched = True
    studio.sampling.governor.mean_hz = 100
    assert main.pace().length_s == RECORDING.watched_length_s - 0.03
    studio.sampling.governor.mean_hz = 1
    assert main.pace().length_s == 0.5


async def test_a_member_is_sampled_once_and_again_after_it_was_ended(studio: Studio) -> None:
    first = await studio.begin(roles.MAIN)
    assert await studio.begin(roles.MAIN) is first
    member = Member(first.identity, None, (), roles.MAIN, None, None, None, 1)
    studio.sampling.end(member)
    await settled()
    studio.sampling.end(member)
    assert await studio.begin(roles.MAIN) is not first


async def test_a_chain_that_breaks_is_said_and_is_alone(
    studio: Studio, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, other = await studio.begin(roles.MAIN, 1), await studio.begin(roles.MAIN, 2)
    broken.fail()
    await settled()
    (said,) = studio.records
    assert isinstance(said, records.EventHappened)
    assert (said.kind, said.identity) == ("error", broken.identity)
    assert "RuntimeError" in capsys.readouterr().err
    studio.sampling.hurry()
    assert (broken.hurries, other.hurries) == (0, 1)


async def test_closing_breaks_off_a_chain_that_does_not_end(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "CLOSING_TIMEOUT_S", 0.01)
    deaf, other = await studio.begin(roles.MAIN, 1), await studio.begin(roles.MAIN, 2)
    deaf.is_deaf = True
    await studio.sampling.close()
    assert (deaf.was_cancelled, other.was_cancelled) == (True, False)


ROOT, CHILD = records.Identity(10, 100), records.Identity(11, 110)
KILLED = 9
TRACKS = "from multiprocessing.resource_tracker import main;main(20)"
WORKER_STACK = (records.Frame("_worker_loop", "/lib/torch/utils/data/_utils/worker.py", 1),)


class ScriptedTree(ProcessTree):
    """A tree that changes as the test says."""

    def __init__(self, clock: StoppedClock) -> None:
        super().__init__(ROOT, tuple, clock)
        self.changes: list[ProcessChange] = []

    def poll(self) -> list[ProcessChange]:
        """Return the changes of the test, and have them in ``members``."""
        changes, self.changes = self.changes, []
        for change in changes:
            if change.kind == EventKind.ENDED:
                self.members.pop(change.member.identity, None)
            else:
                self.members[change.member.identity] = change.member
        return changes


class Stage:
    """Members of a tree that changes as the test says, and what they write.

    Their py-spy does not exist.
    """

    def __init__(self) -> None:
        clock = StoppedClock()
        self.written: list[records.Record] = []
        self.tree = ScriptedTree(clock)
        sampling = Sampling("/nowhere/py-spy", Governor(100, 1.0), clock, self.written.append)
        reading = ReadingWatch(clock, self.written.append, lambda pid: None)
        self.members = Members(self.tree, sampling, reading, clock, self.written.append)

    def look(self, *changes: ProcessChange) -> None:
        self.tree.changes = list(changes)
        self.members.look()

    def events(self) -> list[str]:
        return [record.text for record in self.written if isinstance(record, records.EventHappened)]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def member(
    identity: records.Identity, command: Sequence[str] = ("sleep", "9"), role: str = roles.HELPER
) -> Member:
    """Return a process that is no Python, so that nothing is sampled."""
    return Member(
        identity, None if identity == ROOT else ROOT, tuple(command), role, None, None, None, 1
    )


def recording(identity: records.Identity, *os_tids: int) -> records.RecordingTaken:
    threads = tuple(
        records.ThreadTimeline(os_tid, "t", is_main=False, intervals=()) for os_tid in os_tids
    )
    return records.RecordingTaken(identity, 0, 1, 100, 1, 0, 0, 0, 0, (WORKER_STACK,), threads)


def test_starts_execs_and_ends_of_processes_are_written(stage: Stage) -> None:
    child, root = member(CHILD), member(ROOT, role=roles.MAIN)
    root.placement = records.Placement(5, 1, 1, 8)
    stage.look(ProcessChange(EventKind.STARTED, root), ProcessChange(EventKind.STARTED, child))
    child.command = ("true",)
    stage.look(ProcessChange(EventKind.EXEC, child))
    stage.look(ProcessChange(EventKind.ENDED, child, KILLED))
    assert stage.events() == [
        *(
            "main 10 (rank 5 of 8, local rank 1 on node 1): sleep 9",
            "process 11: sleep 9",
            "process 11 became true",
        ),
        "helper 11 was ended by SIGKILL",
    ]
    seen = [record.identity for record in stage.written if isinstance(record, records.ProcessSeen)]
    assert seen == [ROOT, CHILD, CHILD]
    assert [
        record.exit_signal for record in stage.written if isinstance(record, records.ProcessEnded)
    ] == [9]


def test_the_status_of_the_root_is_kept_and_at_the_end_nothing_is_begun(stage: Stage) -> None:
    stage.look(ProcessChange(EventKind.STARTED, member(ROOT)))
    stage.tree.changes = [
        ProcessChange(EventKind.STARTED, member(CHILD)),
        ProcessChange(EventKind.ENDED, member(ROOT), KILLED),
    ]
    stage.members.look_at_end()
    assert stage.members.root_status == KILLED
    assert stage.events() == ["process 10: sleep 9"]
    assert [type(record).__name__ for record in stage.written][-1] == "ProcessEnded"


def test_threads_are_those_of_the_last_recording_and_nothing_is_held_of_workers_that_ended_before_it_came(
    stage: Stage,
) -> None:
    stage.look(ProcessChange(EventKind.STARTED, member(CHILD)))
    for threads in ((11, 12), (11, 13)):
        stage.members.take_recording(recording(CHILD, *threads))
    assert stage.members.python_threads == {CHILD: {11, 13}}
    stage.look(ProcessChange(EventKind.ENDED, member(CHILD), 0))
    stage.members.take_recording(recording(CHILD, 11))
    assert not stage.members.python_threads


def test_a_process_that_only_waits_is_not_sampled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[records.Identity] = []
    monkeypatch.setattr(
        stage.members.sampling, "begin", lambda member: begun.append(member.identity)
    )
    root, tracker = member(ROOT, role=roles.MAIN), member(CHILD, ("python", "-c", TRACKS))
    root.python = tracker.python = "3.11.7"
    stage.look(ProcessChange(EventKind.STARTED, root), ProcessChange(EventKind.STARTED, tracker))
    assert begun == [ROOT]
    root.command = tracker.command  # one that was asked for
    stage.look(ProcessChange(EventKind.EXEC, root))
    assert begun == [ROOT, ROOT]


def test_a_process_that_turns_out_to_be_a_worker_is_written_again(stage: Stage) -> None:
    stage.look(ProcessChange(EventKind.STARTED, member(CHILD)))
    stage.members.take_recording(recording(CHILD, 11))
    last = [record for record in stage.written if isinstance(record, records.ProcessSeen)][-1]
    assert (last.role, last.ordinal) == (roles.WORKER, 1)


def test_a_child_that_trains_is_written_again_with_its_parent_and_sampled_and_counted_in_its_place(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mains, followed = list[records.Identity](), set[records.Identity]()

    class Followed:
        def begin(self, member: Member) -> None:
            followed.add(member.identity)

        def end(self, identity: records.Identity) -> None:
            followed.discard(identity)

    monkeypatch.setattr(
        stage.members.sampling, "take_main", lambda member: mains.append(member.identity)
    )
    stage.look(
        ProcessChange(EventKind.STARTED, member(ROOT, role=roles.MAIN)),
        ProcessChange(EventKind.STARTED, member(CHILD)),
    )
    stage.members.stepping = cast(Stepping, Followed())
    followed.add(ROOT)
    trains = msgspec.structs.replace(recording(CHILD, 11), stacks=(BACKWARD,))
    stage.members.take_recording(trains)
    seen = [record for record in stage.written if isinstance(record, records.ProcessSeen)][-2:]
    assert [(one.identity, one.role) for one in seen] == [
        (CHILD, roles.MAIN),
        (ROOT, roles.LAUNCHER),
    ]
    assert (mains, followed) == ([CHILD], {CHILD})


def test_the_steps_of_another_program_are_counted_from_before_it_is_written_on(
    stage: Stage,
) -> None:
    renewed = list[tuple[records.Identity, list[str]]]()

    class Followed:
        def begin(self, member: Member) -> None:
            pass

        def renew(self, member: Member) -> None:
            renewed.append((member.identity, stage.events()))

    stage.members.stepping = cast(Stepping, Followed())
    stage.look(ProcessChange(EventKind.STARTED, member(ROOT)))
    stage.look(ProcessChange(EventKind.EXEC, member(ROOT)))
    assert renewed == [(ROOT, ["process 10: sleep 9"])]
    assert stage.events()[1:] == ["process 10 became sleep 9"]


async def test_a_helper_that_becomes_a_main_leaves_its_turns_and_the_others_are_looked_at(
    studio: Studio,
) -> None:
    helper, other = await studio.begin(roles.HELPER, 1), await studio.begin(roles.HELPER, 2)
    studio.sampling.take_main(Member(helper.identity, None, (), roles.MAIN, None, None, None, 1))
    studio.sampling.take_main(
        Member(records.Identity(3, 3), None, (), roles.MAIN, None, None, None, 1)
    )
    assert (helper.is_in_turns, other.is_in_turns) == (False, True)
    assert helper.hurries == 0 < other.hurries
