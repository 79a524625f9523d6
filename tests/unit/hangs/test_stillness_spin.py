"""When a run that computes is said to hang: with recordings, steps, looks and a clock in the test's hands."""

from __future__ import annotations

import pytest
from support.clocks import StoppedClock

from profd.daemon.clock import SECOND_NS
from profd.daemon.hangs.look import Counters, Look, Standing
from profd.daemon.hangs.waits import Wait
from profd.daemon.hangs.watch import HangWatch
from profd.daemon.store.records import (
    Frame,
    HangEnded,
    HangFound,
    Identity,
    Interval,
    Point,
    PointsTaken,
    Record,
    RecordingTaken,
    ThreadTimeline,
)
from profd.daemon.tree.tree import Member

MAIN, OTHER = Identity(100, 1), Identity(101, 1)
LOOP = Frame("<module>", "/srv/train.py", 40)
SPIN = (LOOP, Frame("wait_for_peer", "/srv/train.py", 12))
WORK = (LOOP, Frame("forward", "/srv/train.py", 20))
PATIENCE_S = 30
DUE_S = 4 * PATIENCE_S


class Stage:
    """A run of one process that computes, with a step a second until it spins."""

    def __init__(self, *, tells_steps: bool = True) -> None:
        self.clock = StoppedClock()
        self.put: list[Record] = []
        self.members = [Member(MAIN, None, ("python", "train.py"), "main", None, None, "3.11.7", 1)]
        self.stack: tuple[Frame, ...] = WORK
        self.wait = Wait("running", "it is running")
        self.cores = 1.0
        self.read_bytes_per_s = 0
        self.looks = 0
        self._tells_steps = tells_steps
        self._cpu_s = self._io_bytes = 0.0
        self._steps = 0
        self.watch = HangWatch(PATIENCE_S, self.clock, lambda: self.members, self.put.append, look=self._look)

    def _look(self, members: object, at_ns: int, *, mains_only: bool) -> Look:
        self.looks += 1
        standing = tuple(Standing(member, "MainThread", True, self.stack, self.wait) for member in self.members)
        return Look(at_ns, standing, Counters(int(self._io_bytes), 0, self._cpu_s), 0)

    async def pass_s(self, seconds: int, *points: Point, steps: bool = False) -> None:
        """Let seconds go by; a recording comes in each."""
        for _ in range(seconds):
            begun_ns = self.clock.now_ns()
            self.clock.advance(1)
            self._cpu_s += self.cores
            self._io_bytes += self.read_bytes_per_s
            self._steps += steps
            step = (Point("step_count", self._steps, MAIN),) if self._tells_steps else ()
            self.watch.take(PointsTaken(self.clock.now_ns(), (Point("cpu_cores", self.cores, MAIN), *step, *points)))
            self.watch.take(recording(begun_ns, self.stack))
            await self.watch.check()

    async def spin_s(self, seconds: int, *points: Point) -> None:
        """Train for a while, and then spin for so long."""
        await self.pass_s(20, steps=True)
        self.stack = SPIN
        await self.pass_s(seconds, *points)

    def found(self) -> list[HangFound]:
        return [record for record in self.put if isinstance(record, HangFound)]


def recording(start_ns: int, stack: tuple[Frame, ...], identity: Identity = MAIN) -> RecordingTaken:
    intervals = tuple(Interval(start_ns + part * SECOND_NS // 4, SECOND_NS // 4, 0, 25) for part in range(4))
    main = ThreadTimeline(identity.pid, "MainThread", is_main=True, intervals=intervals)
    helper = ThreadTimeline(identity.pid + 1, "Thread-1", is_main=False, intervals=intervals[:1])
    return RecordingTaken(identity, start_ns, start_ns + SECOND_NS, 100, 100, 0, 0, 0, 0, (stack,), (helper, main))


async def test_a_run_that_spins_hangs_after_four_times_the_patience() -> None:
    stage = Stage()
    await stage.spin_s(DUE_S - 2)
    assert stage.found() == []
    await stage.pass_s(4)
    (hang,) = stage.found()
    assert hang.report.cause == "spin"
    assert "stands in wait_for_peer (train.py:12): it is running" in hang.text
    assert any("the last step that was seen is 20" in fact for fact in hang.report.facts)
    assert abs(stage.clock.now_ns() - hang.since_ns - DUE_S * SECOND_NS) < 4 * SECOND_NS


async def test_it_is_told_once_and_ends_when_it_stands_elsewhere() -> None:
    stage = Stage()
    await stage.spin_s(3 * DUE_S)
    assert len(stage.found()) == 1
    stage.stack = WORK
    await stage.pass_s(2)
    assert [end.hang_ns for end in stage.put if isinstance(end, HangEnded)] == [stage.found()[0].at_ns]


async def test_where_it_spins_is_the_cause_where_that_tells() -> None:
    stage = Stage()
    reduce = Frame("all_reduce", "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 9)
    await stage.pass_s(20, steps=True)
    stage.stack = (LOOP, reduce)
    await stage.pass_s(DUE_S + 2)
    assert stage.found()[0].report.cause == "collective"


async def test_a_stack_that_changes_once_in_a_while_is_no_hang() -> None:
    stage = Stage()
    await stage.spin_s(1)
    for _ in range(10):
        await stage.pass_s(DUE_S - 30)
        stage.stack = WORK if stage.stack is SPIN else SPIN
    assert stage.found() == []


@pytest.mark.parametrize(
    ("changed", "is_looked_at"),
    [
        ({"_tells_steps": False}, False),
        ({"cores": 1.9}, True),
        ({"read_bytes_per_s": 1 << 20}, True),
        ({"wait": Wait("lock", "a lock")}, True),
    ],
    ids=[
        "without steps nobody can tell",
        "many cores work",
        "one that reads works",
        "a wait for a worker that computes",
    ],
)
async def test_one_long_call_may_be_work(changed: dict[str, object], is_looked_at: bool) -> None:
    stage = Stage()
    vars(stage).update(changed)
    await stage.spin_s(3 * DUE_S)
    assert stage.found() == []
    assert bool(stage.looks) == is_looked_at


async def test_steps_are_progress_whatever_the_stack() -> None:
    stage = Stage()
    stage.stack = SPIN
    await stage.pass_s(3 * DUE_S, steps=True)
    assert (stage.found(), stage.looks) == ([], 0)


async def test_a_gpu_whose_load_changes_is_work() -> None:
    stage = Stage()
    await stage.spin_s(1)
    for second in range(2 * DUE_S):
        await stage.pass_s(1, Point("gpu_utilization_share", second % 2 * 0.5, device="gpu0"))
    assert stage.found() == []


async def test_of_several_all_have_to_stand() -> None:
    stage = Stage()
    stage.members.append(Member(OTHER, None, ("python", "train.py"), "main", 1, None, "3.11.7", 1))
    await stage.spin_s(1)
    for second in range(2 * DUE_S):
        stage.watch.take(recording(stage.clock.now_ns(), WORK if second % 2 else SPIN, OTHER))
        await stage.pass_s(1)
    assert stage.found() == []
    del stage.members[1]  # it has ended: who is left spins
    await stage.pass_s(DUE_S)
    assert len(stage.found()) == 1


async def test_recordings_that_no_longer_come_tell_nothing() -> None:
    stage = Stage()
    await stage.spin_s(DUE_S - 30)
    for _ in range(100):
        stage.clock.advance(1)
        await stage.watch.check()
    assert stage.found() == []
