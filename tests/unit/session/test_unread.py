"""What is said of processes that are not read, on a clock that stands still until it is moved."""

from __future__ import annotations

import asyncio

import pytest
from support.clocks import StoppedClock
from support.synthetic import identity_of

from profd.daemon import processes
from profd.daemon.events import EventKind
from profd.daemon.session.unread import ReadingWatch
from profd.daemon.store.records import (
    EventHappened,
    Frame,
    Interval,
    Record,
    RecordingTaken,
    ThreadTimeline,
)
from profd.daemon.tree.unread import RUNS_NOTHING, Reason

DEEP = Reason(
    "a thread of it is 4,204 calls deep", "it is read again once that thread returns", lasting=False
)
SEVERAL = Reason("it has more than one interpreter", "do without subinterpreters")
ODD = Reason("the name of its file is not UTF-8", "rename it", leaves_some=True)
WORDS = "Failed to copy PyCodeObject"


class Scene:
    """A watch of this process, and what it says; ``reason`` is what is seen in the process."""

    def __init__(self) -> None:
        self.me, self.clock = identity_of(), StoppedClock()
        self.records: list[Record] = []
        self.reason: Reason | None = None
        self.looks: list[int] = []
        self.watch = ReadingWatch(self.clock, self.records.append, self._why)

    def _why(self, pid: int) -> Reason | None:
        self.looks.append(pid)
        return self.reason

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(one.kind, one.text) for one in self.records if isinstance(one, EventHappened)]

    async def fail(self, seconds: float, words: str = WORDS) -> None:
        """Let recordings fail once a second for so long."""
        for _ in range(int(seconds)):
            self.watch.take_failure(self.me, words)
            await self.settle()
            self.clock.advance(1)

    async def record(self, samples: int, torn: int = 0, seconds: float = 1.0) -> None:
        start_ns = self.clock.now_ns()
        self.clock.advance(seconds)
        self.watch.take(
            RecordingTaken(
                self.me, start_ns, self.clock.now_ns(), 100, samples, torn, 0, 0, 0, (), ()
            )
        )
        await self.settle()

    async def settle(self) -> None:
        """Wait until no look is under way."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_what_is_read_and_a_moment_in_which_nothing_is_are_not_said(scene: Scene) -> None:
    await scene.record(100)
    await scene.fail(4)
    await scene.record(100)
    await scene.fail(4)
    await scene.record(100)
    await scene.watch.close()
    assert scene.said == []


async def test_five_seconds_without_a_stack_are_said_once_with_the_reason_that_was_seen(
    scene: Scene,
) -> None:
    await scene.record(100)
    scene.reason = DEEP
    await scene.fail(30)
    ((kind, text),) = scene.said
    assert kind == EventKind.UNREAD
    assert text == (
        f"nothing was read from pid {scene.me.pid} for 5.0 s: a thread of it is 4,204 calls deep "
        f"(py-spy: {WORDS}); it is read again once that thread returns"
    )
    assert len(scene.looks) <= 6  # at first, and again after twice as long
    await scene.record(100)
    assert scene.said[1:] == [("note", f"pid {scene.me.pid} is read again, after 30 s")]


@pytest.mark.parametrize(("words", "said"), [(WORDS, WORDS), ("", "nothing, and no stack came")])
async def test_a_reason_that_was_not_seen_is_unknown(scene: Scene, words: str, said: str) -> None:
    await scene.fail(7, words)
    ((_, text),) = scene.said
    assert text.endswith(f"unknown why, py-spy says: {said}")


async def test_recordings_without_a_whole_stack_read_nothing(scene: Scene) -> None:
    scene.reason = SEVERAL
    for _ in range(3):
        await scene.record(samples=7, torn=7, seconds=4.5)
    ((kind, text),) = scene.said
    assert kind == EventKind.UNREAD
    assert f"{SEVERAL.what}; {SEVERAL.remedy}" in text


async def test_what_was_never_read_is_said_at_the_end_of_the_recording(scene: Scene) -> None:
    scene.reason = DEEP
    await scene.fail(1)
    assert scene.said == []
    await scene.watch.close()
    assert [kind for kind, _ in scene.said] == [EventKind.UNREAD]


@pytest.mark.parametrize(("reason", "events"), [(SEVERAL, 1), (DEEP, 0), (None, 0)])
async def test_a_process_that_ends_unread_is_said_if_it_never_could_be_read(
    scene: Scene, reason: Reason | None, events: int
) -> None:
    scene.reason = reason
    await scene.fail(1)
    scene.watch.end(scene.me)
    await scene.watch.close()
    assert len(scene.said) == events


async def test_a_process_that_dies_is_not_said_to_be_unread(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.reason = SEVERAL
    monkeypatch.setattr(processes, "read_running", lambda pid, start_ticks: None)
    await scene.fail(30)
    await scene.watch.close()
    assert scene.said == []


@pytest.mark.parametrize("was_read", [True, False])
async def test_what_runs_no_python_any_more_is_not_unread_and_what_never_did_is(
    scene: Scene, was_read: bool
) -> None:
    if was_read:
        await scene.record(100)
    scene.reason = RUNS_NOTHING
    await scene.fail(9)
    assert len(scene.said) == (0 if was_read else 1)


@pytest.mark.parametrize(
    ("root", "reason", "events"),
    [("train", ODD, 1), ("train", SEVERAL, 0), ("train", None, 0), ("<module>", ODD, 0)],
)
async def test_frames_that_are_left_out_of_what_is_read_are_said(
    scene: Scene, root: str, reason: Reason | None, events: int
) -> None:
    scene.reason = reason
    timeline = ThreadTimeline(
        scene.me.pid, "MainThread", is_main=True, intervals=(Interval(0, 1, 0, 9),)
    )
    stacks, threads = ((Frame(root, "/a/train.py", 4),),), (timeline,)
    for _ in range(2):
        scene.watch.take(RecordingTaken(scene.me, 0, 1, 100, 9, 0, 0, 0, 0, stacks, threads))
        await scene.settle()
    assert [kind for kind, _ in scene.said] == [EventKind.UNREAD] * events
    assert all(
        text.startswith(f"not all frames of pid {scene.me.pid} are read: ")
        for _, text in scene.said
    )


async def test_a_torn_share_of_more_than_some_percent_is_a_note(scene: Scene) -> None:
    await scene.record(samples=400, torn=100)
    assert scene.said == []  # of so few it may be chance
    for _ in range(3):
        await scene.record(samples=400, torn=20)
    assert [text.partition(":")[0] for _, text in scene.said] == [
        "15 % of the stacks were torn and left out"
    ]


async def test_a_usual_torn_share_is_none(scene: Scene) -> None:
    for _ in range(9):
        await scene.record(samples=1_000, torn=30)
    assert scene.said == []
