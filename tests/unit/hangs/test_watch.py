"""When a run is said to hang, and when not: with records, looks and a clock in the test's hands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from support.clocks import StoppedClock
from support.synthetic import recording
from support.waiting import DEADLINE_S, eventually

from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.hangs.look import Look, StackState
from profd.daemon.hangs.waits import Wait
from profd.daemon.hangs.watch import HangWatch, Hook
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store.records import (
    EventHappened,
    Frame,
    HangEnded,
    HangFound,
    HangReport,
    Identity,
    Point,
    PointsTaken,
    ProcessEnded,
    Record,
    RecordingTaken,
)
from profd.daemon.tree.tree import Member

MAIN, WORKER, OTHER = Identity(100, 1), Identity(101, 2), Identity(102, 1)
MEMBERS = [
    Member(MAIN, None, ("python", "train.py"), "main", None, None, "3.11.7", 1),
    Member(WORKER, MAIN, ("python", "train.py"), "worker", None, 1, "3.11.7", 1),
]
LOOP = Frame("<module>", "/srv/train.py", 40)
GET = Frame("Queue.get", "/usr/lib/python3.11/queue.py", 171)
BATON = Frame("FileBaton.wait", "/usr/lib/python3/dist-packages/torch/utils/file_baton.py", 49)
SERVING = (
    Frame("BaseEventLoop._run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884),
    Frame("EpollSelector.select", "/usr/lib/python3.11/selectors.py", 468),
)
LOCK = Wait("lock", "a lock")


class Stage:
    """A run that stands or goes on as the test says."""

    def __init__(self, after_s: float = 30.0, hook: Hook | None = None) -> None:
        self.clock = StoppedClock()
        self.put: list[Record] = []
        self.stack: tuple[Frame, ...] = (LOOP, GET)
        self.wait = LOCK
        self.beside: tuple[Frame, ...] = ()
        self.servers: frozenset[int] = frozenset()
        self.others = 0
        self.io_bytes, self.switches, self.cpu_s = 1000, 50, 0.0
        self.looks = 0
        self.members = MEMBERS
        members = lambda: self.members  # noqa: E731
        self.watch = HangWatch(
            after_s, self.clock, members, self.put.append, hook or Hook(None), self._look
        )

    def _look(self, members: Sequence[Member], at_ns: int, *, mains_only: bool) -> Look:
        self.looks += 1
        mains, waits = (
            (member for member in self.members if member.role == "main"),
            self.switches,
        )
        standing = tuple(
            StackState(member, "MainThread", True, self.stack, self.wait, waits) for member in mains
        )
        if self.beside and not mains_only:
            standing += (standing[0]._replace(is_main=False, stack=self.beside, wait=LOCK),)
        return Look(
            at_ns,
            standing,
            self.io_bytes,
            self.switches,
            {None: self.cpu_s},
            others=self.others,
            servers=self.servers,
        )

    async def pass_s(
        self, seconds: int, cores: float = 0.0, *points: Point, wakes: int = 0
    ) -> None:
        """Let seconds go by, with a reading in each."""
        for _ in range(seconds):
            self.clock.advance(1)
            self.switches += wakes
            self.watch.take(
                PointsTaken(self.clock.now_ns(), (Point("cpu_cores", cores, MAIN), *points))
            )
            await self.watch.check()

    def found(self) -> list[HangFound]:
        return [record for record in self.put if isinstance(record, HangFound)]


async def test_a_run_that_stands_still_hangs_within_its_timeout() -> None:
    stage = Stage()
    await stage.pass_s(20, 1.0)
    await stage.pass_s(26)
    assert stage.found() == []
    await stage.pass_s(4)
    (hang,) = stage.found()
    assert hang.report.cause == "queue"
    assert "the main process stands in Queue.get (train.py:40): a lock" in hang.text
    assert abs(hang.since_ns - (stage.clock.now_ns() - 30e9)) < 4e9
    assert [record.kind for record in stage.put if isinstance(record, EventHappened)] == ["hang"]


async def test_a_run_may_hang_from_a_third_of_its_timeout_on_until_that_is_said() -> None:
    stage = Stage()
    await stage.pass_s(20, 1.0)
    seen = []
    for _ in range(40):
        await stage.pass_s(1)
        seen.append((stage.watch.is_suspicious, bool(stage.found())))
    first, told = seen.index((True, False)), seen.index((False, True))
    assert 9 <= first <= 14 < told
    assert {*seen[:first]} == {(False, False)}
    assert {*seen[first:told]} == {(True, False)}
    assert {*seen[told:]} == {(False, True)}


@pytest.mark.parametrize(("kind", "count"), [("gil", 1), ("lock", 0)])
async def test_who_asks_for_the_gil_all_the_time_makes_no_progress(kind: str, count: int) -> None:
    stage = Stage()
    stage.stack, stage.wait = (LOOP,), Wait(kind, "waits")
    await stage.pass_s(60, 0.0, wakes=200)
    assert [hang.report.cause for hang in stage.found()] == ["lock"] * count


async def test_looks_that_the_budget_refuses_are_put_off_and_what_was_seen_before_counts() -> None:
    stage, asked, may = Stage(), list[float](), [True]

    def grant(cpu_s: float) -> bool:
        asked.append(cpu_s)
        return may[-1]

    stage.watch.grant = grant
    await stage.pass_s(20)
    assert (len(asked), stage.looks) == (1, 1)
    may.append(False)
    await stage.pass_s(60)
    assert (stage.looks, stage.found()) == (1, [])
    may.append(True)
    await stage.pass_s(1)
    assert (stage.looks, len(stage.found())) == (2, 1)
    said = [
        record.text
        for record in stage.put
        if isinstance(record, EventHappened) and record.kind == "note"
    ]
    assert said == ["looks for hangs wait for profd's budget: each takes about 0.0 s of CPU"]


async def test_a_hang_and_its_end_are_recorded_once() -> None:
    stage = Stage()
    await stage.pass_s(100)
    assert len(stage.found()) == 1
    await stage.pass_s(3, 1.0)
    ended = [record for record in stage.put if isinstance(record, HangEnded)]
    assert [end.hang_ns for end in ended] == [stage.found()[0].at_ns]
    await stage.pass_s(40)
    assert len(stage.found()) == 2


async def test_work_on_the_cpu_is_no_hang() -> None:
    stage = Stage()
    await stage.pass_s(200, 0.2)
    assert (stage.found(), stage.looks) == ([], 0)


async def test_heartbeats_do_not_hide_a_hang() -> None:
    stage = Stage()
    for _ in range(10):
        await stage.pass_s(9)
        await stage.pass_s(1, 0.3)
    assert len(stage.found()) == 1


@pytest.mark.parametrize(
    ("wakes", "beside", "soon", "late"),
    [
        (10, (), ["polling"], ["polling"]),
        (0, (), [], ["sleep"]),
        (10, SERVING, [], []),
        (10, (Frame("watch", "/srv/train.py", 9), GET), ["polling"], ["polling"]),
    ],
    ids=["a lock file is asked for", "one long sleep", "a server polls for its end", "a thread"],
)
async def test_a_wait_by_polling_is_a_wait_and_no_sleep_that_ends(
    wakes: int, beside: tuple[Frame, ...], soon: list[str], late: list[str]
) -> None:
    stage = Stage()
    stage.stack, stage.wait, stage.beside = (LOOP, BATON), Wait("sleep", "sleeps"), beside
    await stage.pass_s(30, wakes=wakes)
    assert [hang.report.cause for hang in stage.found()] == soon
    await stage.pass_s(100, wakes=wakes)
    assert [hang.report.cause for hang in stage.found()] == late
    if soon:
        says = "in FileBaton.wait (train.py:40): polls: it sleeps 10 times a second; for what is "
        assert says in stage.found()[0].text


async def test_a_script_that_asks_whether_others_are_done_does_not_hang_while_they_wake_up() -> (
    None
):
    stage = Stage()
    stage.stack, stage.wait = (LOOP, BATON), Wait("sleep", "sleeps")
    for _ in range(150):
        stage.others += 10
        await stage.pass_s(1, wakes=10)
    assert stage.found() == []
    await stage.pass_s(60, wakes=10)
    assert [hang.report.cause for hang in stage.found()] == ["polling"]


async def test_a_script_that_asks_for_a_gpu_at_work_hangs_as_late_as_one_that_sleeps() -> None:
    stage = Stage()
    stage.stack, stage.wait = (LOOP, BATON), Wait("sleep", "sleeps")
    full = Point("gpu_utilization_share", 1.0, device="gpu0")
    await stage.pass_s(100, 0.0, full, wakes=10)
    assert stage.found() == []
    await stage.pass_s(30, 0.0, full, wakes=10)
    assert [hang.report.cause for hang in stage.found()] == ["polling"]


WORK: dict[str, Callable[[int], dict[str, object]]] = {
    "reading or writing": lambda second: {"io_bytes": 1000 + (second << 20)},
    "CPU time between the looks": lambda second: {"cpu_s": second * 0.5},
    "another stack": lambda second: {"stack": (Frame("<module>", "/srv/train.py", second), GET)},
    "a prompt": lambda second: {
        "stack": (LOOP,),
        "wait": Wait("terminal", "reads the terminal /dev/pts/1"),
    },
}


SITE = "/usr/lib/python3.11/site-packages"
KERNEL = (
    Frame("<module>", f"{SITE}/ipykernel_launcher.py", 18),
    Frame("IPKernelApp.start", f"{SITE}/ipykernel/kernelapp.py", 739),
    Frame("BaseEventLoop._run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884),
    Frame("EpollSelector.select", "/usr/lib/python3.11/selectors.py", 468),
)
CELL = Frame("<module>", "/tmp/ipykernel_4242/17.py", 3)


@pytest.mark.parametrize(
    ("stack", "wait", "hangs"),
    [
        ((), Wait("terminal", "reads the terminal /dev/pts/1"), 0),
        ((), Wait("read", "reads a pipe"), 0),
        ((LOOP,), Wait("terminal", "reads the terminal /dev/pts/1"), 0),
        (KERNEL, Wait("events", "waits for events"), 0),
        (KERNEL[:-1], Wait("lock", "a lock"), 1),
        ((*KERNEL[:2], CELL, *KERNEL[2:]), Wait("events", "waits for events"), 1),
        (KERNEL[2:], Wait("events", "waits for events"), 1),
        ((), Wait("lock", "a lock"), 1),
        ((LOOP,), Wait("write", "writes the terminal /dev/pts/1"), 1),
    ],
    ids=[
        *(
            "python -i",
            "python -i < pipe",
            "input() and breakpoint()",
            "a kernel between two cells",
        ),
        *(
            "a kernel that stands",
            "a cell that waits",
            "an async training",
            "an end that hangs",
            "a frozen terminal",
        ),
    ],
)
async def test_a_prompt_after_the_training_is_no_hang_and_is_looked_at_now_and_then(
    stack: tuple[Frame, ...], wait: Wait, hangs: int
) -> None:
    stage = Stage()
    await stage.pass_s(1, 1.0, Point("step_count", 1, MAIN))
    await stage.pass_s(1, 1.0, Point("step_count", 2, MAIN))
    stage.stack, stage.wait = stack, wait
    await stage.pass_s(300)
    assert len(stage.found()) == hangs
    assert stage.looks <= 30


SELECT = SERVING[1]
FOREVER = Frame("BaseServer.serve_forever", "/usr/lib/python3.11/socketserver.py", 233)
UPLOAD = Frame("upload", "/srv/train.py", 70)
JOIN = Frame("Thread.join", "/usr/lib/python3.11/threading.py", 1119)
# Whether the loop of the steps was left, where the leading thread and another one stand now,
# whether the process listens for connections, and whether it hangs.
AFTER: dict[str, tuple[bool, tuple[Frame, ...], tuple[Frame, ...], bool, int]] = {
    "a server of the standard library": (True, (LOOP, FOREVER, SELECT), (), True, 0),
    "an event loop": (True, (LOOP, *SERVING), (), True, 0),
    "it joins the thread of its server": (True, (LOOP, JOIN), SERVING, True, 0),
    "it joins the thread of another one": (True, (LOOP, JOIN), (LOOP, GET), True, 1),
    "a handler that waits": (True, (LOOP, SERVING[0], UPLOAD, SELECT), (), True, 1),
    "an upload after the training": (True, (LOOP, *SERVING), (), False, 1),
    "an upload within the training": (False, (LOOP, *SERVING), (), True, 1),
}  # fmt: skip


@pytest.mark.parametrize(
    ("has_left", "stack", "beside", "listens", "hangs"), AFTER.values(), ids=AFTER
)
async def test_a_program_that_serves_after_its_training_does_not_hang(
    has_left: bool,
    stack: tuple[Frame, ...],
    beside: tuple[Frame, ...],
    listens: bool,
    hangs: int,
) -> None:
    stage = Stage()
    for step in range(2):
        await stage.pass_s(1, 1.0, Point("step_count", step, MAIN))
    if has_left:
        stage.watch.take(EventHappened(stage.clock.now_ns(), EventKind.LOOP_LEFT, "", MAIN))
    stage.stack, stage.beside, stage.wait = stack, beside, Wait("events", "waits for events")
    stage.servers = frozenset({MAIN.pid} if listens else ())
    await stage.pass_s(60)
    assert len(stage.found()) == hangs


IDLE = Frame("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81)
FEED = Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103)
# Where the leading thread and another one stand, whether the process listens, and whether it hangs.
POOLS: dict[str, tuple[tuple[Frame, ...], tuple[Frame, ...], bool, int]] = {
    "a pool's thread without work": ((IDLE,), (LOOP, *SERVING), True, 0),
    "a pool's thread at its training": ((IDLE, UPLOAD, FEED), (LOOP, *SERVING), True, 1),
    "no server beside it": ((IDLE,), (LOOP, GET), True, 1),
    "a loop that nobody can ask": ((IDLE,), (LOOP, *SERVING), False, 1),
}  # fmt: skip


@pytest.mark.parametrize(("stack", "beside", "listens", "hangs"), POOLS.values(), ids=POOLS)
async def test_a_server_whose_pool_trained_before_steps_were_counted_does_not_hang(
    stack: tuple[Frame, ...], beside: tuple[Frame, ...], listens: bool, hangs: int
) -> None:
    stage = Stage()
    await stage.pass_s(5, 1.0)
    stage.stack, stage.beside = stack, beside
    stage.servers = frozenset({MAIN.pid} if listens else ())
    await stage.pass_s(60)
    assert len(stage.found()) == hangs


async def test_a_program_that_trains_again_does_not_serve() -> None:
    stage = Stage()
    stage.stack, stage.wait = (LOOP, *SERVING), Wait("events", "waits for events")
    stage.servers = frozenset({MAIN.pid})
    for step in (1, 2, 3):
        await stage.pass_s(1, 1.0, Point("step_count", step, MAIN))
        if step == 2:
            stage.watch.take(EventHappened(stage.clock.now_ns(), EventKind.LOOP_LEFT, "", MAIN))
    await stage.pass_s(60)
    assert len(stage.found()) == 1


@pytest.mark.parametrize("look", WORK.values(), ids=WORK)
async def test_what_a_look_shows_of_work_is_no_hang(
    look: Callable[[int], dict[str, object]],
) -> None:
    stage = Stage()
    for second in range(200):
        vars(stage).update(look(second))
        await stage.pass_s(1)
    assert stage.found() == []
    assert stage.looks


async def test_waking_up_again_and_again_is_no_hang_unless_steps_stand_still() -> None:
    stage = Stage()
    await stage.pass_s(100, wakes=100)
    assert stage.found() == []
    await stage.pass_s(1, 1.0, Point("step_count", 1, MAIN))
    await stage.pass_s(1, 1.0, Point("step_count", 2, MAIN))
    await stage.pass_s(40, wakes=100)
    (hang,) = stage.found()
    assert any("the last step that was seen is 2" in fact for fact in hang.report.facts)


@pytest.mark.parametrize(
    ("is_transfer", "wakes", "hangs"), [(True, 20, 0), (True, 2, 1), (False, 20, 1)]
)
async def test_data_that_comes_slowly_is_no_hang_also_where_steps_are_known(
    is_transfer: bool, wakes: int, hangs: int
) -> None:
    stage = Stage()
    await stage.pass_s(1, 1.0, Point("step_count", 1, MAIN))
    await stage.pass_s(1, 1.0, Point("step_count", 2, MAIN))
    stage.wait = Wait("read", "reads a socket", is_transfer)
    await stage.pass_s(60, wakes=wakes)
    assert len(stage.found()) == hangs


async def test_steps_that_are_not_counted_any_more_prove_no_hang() -> None:
    stage = Stage()
    for step in range(3):
        await stage.pass_s(1, 1.0, Point("step_count", step, MAIN))
    stage.watch.take(EventHappened(stage.clock.now_ns(), EventKind.STEPS_LOST, "", MAIN))
    await stage.pass_s(100, wakes=100)
    assert stage.found() == []


@pytest.mark.parametrize("cores", [0.0, 0.02])
async def test_a_training_that_takes_little_cpu_has_all_the_timeout_from_its_last_step_on(
    cores: float,
) -> None:
    stage = Stage()
    for step in range(60):
        await stage.pass_s(1, cores, Point("step_count", step, MAIN))
    await stage.pass_s(25)
    assert stage.found() == []
    await stage.pass_s(5)
    (hang,) = stage.found()
    assert "no progress for 27 s" in hang.text


async def test_long_steps_get_a_long_timeout() -> None:
    stage = Stage()
    for step in range(3):
        await stage.pass_s(20, 1.0)
        await stage.pass_s(1, 1.0, Point("step_count", step, MAIN))
    await stage.pass_s(180)
    assert stage.found() == []
    await stage.pass_s(35)
    assert len(stage.found()) == 1


@pytest.mark.parametrize("step_s", [130, 400])
async def test_steps_of_minutes_hang_after_ten_of_them_and_not_before(step_s: int) -> None:
    stage = Stage()
    for step in range(3):
        await stage.pass_s(step_s - 1, 1.0)
        await stage.pass_s(1, 1.0, Point("step_count", step, MAIN))
    await stage.pass_s(9 * step_s)
    assert stage.found() == []
    await stage.pass_s(2 * step_s)
    assert len(stage.found()) == 1


async def test_work_between_long_quiet_times_is_no_hang() -> None:
    stage = Stage(1500.0)
    for _ in range(6):
        await stage.pass_s(700)
        await stage.pass_s(60, 1.0)
    assert stage.found() == []


async def test_a_gpu_whose_load_changes_is_no_hang_and_a_constant_one_is() -> None:
    stage = Stage()
    for second in range(100):
        await stage.pass_s(
            1, 0.0, Point("gpu_utilization_share", 0.9 + second % 2 * 0.05, device="gpu0")
        )
    assert stage.found() == []
    await stage.pass_s(60, 0.0, Point("gpu_utilization_share", 1.0, device="gpu0"))
    (hang,) = stage.found()
    assert "gpu0 at a constant 100 %" in hang.report.facts


async def test_a_sleep_gets_four_times_the_timeout() -> None:
    stage = Stage()
    stage.stack, stage.wait = (LOOP,), Wait("sleep", "sleeps")
    await stage.pass_s(110)
    assert stage.found() == []
    await stage.pass_s(15)
    assert stage.found()[0].report.cause == "sleep"


async def test_a_sleep_is_found_by_a_timeout_of_minutes_too() -> None:
    stage = Stage(400.0)
    stage.stack, stage.wait = (LOOP,), Wait("sleep", "sleeps")
    await stage.pass_s(1700)
    assert stage.found()[0].report.cause == "sleep"


async def test_a_frozen_process_hangs_only_if_it_stands_still_once_it_goes_on() -> None:
    stage = Stage()
    await stage.pass_s(20, 1.0)
    stage.wait = Wait("frozen", "it is frozen with its control group")
    await stage.pass_s(200)
    assert stage.found() == []
    stage.wait = LOCK
    await stage.pass_s(60)
    (hang,) = stage.found()
    assert hang.report.cause == "queue"


@pytest.mark.parametrize(
    ("code", "number", "before_s", "cause"),
    [
        (None, 9, 0, "dead worker"),
        (1, None, 0, "dead worker"),
        (0, None, 0, "queue"),
        (None, 9, 30, "queue"),
    ],
)
async def test_a_process_that_died_shortly_before_is_the_cause(
    code: int | None, number: int | None, before_s: int, cause: str
) -> None:
    stage = Stage()
    await stage.pass_s(20, 1.0)
    stage.watch.take(ProcessEnded(WORKER, stage.clock.now_ns(), code, number))
    await stage.pass_s(before_s, 1.0)
    await stage.pass_s(40)
    (hang,) = stage.found()
    assert hang.report.cause == cause
    assert before_s or any(fact.startswith("worker 1 (pid 101) ") for fact in hang.report.facts)


async def test_the_users_command_runs_with_the_cause_and_the_text(tmp_path: Path) -> None:
    written = tmp_path / "written"
    hook = Hook(
        f'echo "$PROFD_HANG_CAUSE $PROFD_HANG" > {written}.new && mv {written}.new {written}'
    )
    stage = Stage(hook=hook)
    await stage.pass_s(40)
    for process in hook.running:
        assert process.wait(30) == 0
    assert written.read_text().startswith("queue no progress for ")


def test_what_a_run_calls_itself_is_no_part_of_the_users_command(tmp_path: Path) -> None:
    text, cause = (
        f"; touch {tmp_path}/text; $(touch {tmp_path}/text)",
        f"'`touch {tmp_path}/cause`'",
    )
    hook = Hook(f'printf "%s|%s" "$PROFD_HANG" "$PROFD_HANG_CAUSE" > {tmp_path}/given')
    hang = HangFound(0, 0, text, HangReport(cause, ()))
    assert hook.start(hang, tmp_path / "run.hang.md") is None
    assert [process.wait(DEADLINE_S) for process in hook.running] == [0]
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("given", f"{text}|{cause}")
    ]


async def test_the_text_of_a_hang_is_written_before_the_users_command_gets_its_path(
    tmp_path: Path,
) -> None:
    told, given = tmp_path / "run.hang.md", tmp_path / "given"
    hook = Hook(f'cat "$PROFD_HANG_FILE" > {given}')
    stage = Stage(hook=hook)

    def write(hang: HangFound, look: Look, gpus: object) -> Path:
        told.write_text(f"{hang.report.cause} {look.mains()[0].thread} {gpus}")
        return told

    stage.watch.write = write
    await stage.pass_s(40, 0.0, Point("gpu_power_watts", 90.0, device="gpu0"))
    for process in hook.running:  # one that has ended may be in it no more
        assert process.wait(DEADLINE_S) == 0
    assert given.read_text().startswith("queue MainThread {")
    assert "'gpu_power_watts': {'gpu0': [90.0, " in given.read_text()


async def test_what_flight_recorders_dump_when_asked_is_in_the_text_of_the_hang() -> None:
    stage, told, asked = Stage(), list[Mapping[str, object]](), list[Look]()
    stage.watch.ask_for_dumps = lambda look: not asked.append(look)  # type: ignore[func-returns-value]
    stage.watch.dumps = lambda members, since_ns: {0: "flight recorder of rank 0: all_reduce 3"}
    stage.watch.write = lambda hang, look, beside: told.append(beside)
    stage.watch.dump_s = 0.0
    await stage.pass_s(60)
    assert len(asked) == 1
    assert [one["Flight recorders"] for one in told] == [
        ["flight recorder of rank 0: all_reduce 3"]
    ]
    said = [one.text for one in stage.put if isinstance(one, EventHappened)]
    assert said.count("flight recorder of rank 0: all_reduce 3") == 1


async def test_a_text_that_cannot_be_written_is_an_error_and_the_command_runs(
    tmp_path: Path,
) -> None:
    hook = Hook(f'echo "[$PROFD_HANG_FILE]" > {tmp_path}/given')
    stage = Stage(hook=hook)

    def fail(*_: object) -> Path:
        raise OSError("no space left")

    stage.watch.write = fail
    await stage.pass_s(40)
    for process in hook.running:  # one that has ended may be in it no more
        assert process.wait(DEADLINE_S) == 0
    assert (tmp_path / "given").read_text() == "[]\n"
    said = [one.text for one in stage.put if isinstance(one, EventHappened)]
    assert "the text of the hang could not be written (no space left)" in said


async def test_a_command_that_cannot_be_started_is_an_event() -> None:
    stage = Stage(hook=Hook("\0"))
    await stage.pass_s(40)
    assert [record.kind for record in stage.put if isinstance(record, EventHappened)] == [
        "hang",
        "error",
    ]


async def test_a_watch_that_fails_says_so_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*words: object, **more: object) -> Look:
        raise ZeroDivisionError("planted")

    stage = Stage(after_s=0.06)
    stage.watch.look = fail
    for _ in range(3):
        stage.clock.advance(1)
        stage.watch.take(PointsTaken(stage.clock.now_ns(), (Point("cpu_cores", 0.0, MAIN),)))
    stage.watch.start()
    await eventually(lambda: stage.put, "a record of the failure")
    await stage.watch.close()
    assert [
        (record.kind, "planted" in record.text)
        for record in stage.put
        if isinstance(record, EventHappened)
    ] == [("error", True)]
    assert "ZeroDivisionError" in capsys.readouterr().err


SPINNING = Frame("wait_for_peer", "/srv/train.py", 12)
REDUCE = Frame(
    "all_reduce", "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 9
)
SPIN = (LOOP, SPINNING)
FORWARD = (LOOP, Frame("forward", "/srv/train.py", 20))
DUE_S = 4 * 30


class Busy(Stage):
    """A run of one process that computes, with a step a second until it spins."""

    def __init__(self) -> None:
        super().__init__()
        self.members = MEMBERS[:1]
        self.stack, self.wait = FORWARD, Wait("running", "it is running")
        self.cores, self.read_bytes_per_s, self.tells_steps = 1.0, 0, True
        self._steps = 0

    async def work_s(self, seconds: int, *points: Point, steps: bool = False) -> None:
        """Let seconds go by; a recording comes in each."""
        for _ in range(seconds):
            self.cpu_s += self.cores
            self.io_bytes += self.read_bytes_per_s
            self._steps += steps
            self.watch.take(read(self.clock.now_ns(), self.stack))
            step = (Point("step_count", self._steps, MAIN),) if self.tells_steps else ()
            await self.pass_s(1, self.cores, *step, *points)

    async def spin_s(self, seconds: int, *points: Point, where: Frame = SPINNING) -> None:
        """Train for a while, and then spin for so long."""
        await self.work_s(20, steps=True)
        self.stack = (LOOP, where)
        await self.work_s(seconds, *points)


def read(start_ns: int, stack: tuple[Frame, ...], identity: Identity = MAIN) -> RecordingTaken:
    main = (identity.pid, "MainThread", True, ((stack, 250),) * 4)
    return recording(
        identity, start_ns, ((identity.pid + 1, "Thread-1", False, ((stack, 250),)), main)
    )


@pytest.mark.parametrize(("where", "cause"), [(SPINNING, "spin"), (REDUCE, "collective")])
async def test_a_run_that_spins_hangs_after_four_times_the_timeout(
    where: Frame, cause: str
) -> None:
    stage = Busy()
    await stage.spin_s(DUE_S - 4, where=where)
    assert stage.found() == []
    await stage.work_s(4)
    (hang,) = stage.found()
    assert hang.report.cause == cause
    assert where is REDUCE or "stands in wait_for_peer (train.py:12): it is running" in hang.text
    assert any("the last step that was seen is 20" in fact for fact in hang.report.facts)
    assert abs(stage.clock.now_ns() - hang.since_ns - DUE_S * SECOND_NS) < 4 * SECOND_NS


SYNCHRONIZE = Frame("synchronize", "/venv/lib/python3.11/site-packages/torch/cuda/__init__.py", 9)


@pytest.mark.parametrize(
    ("changed", "is_hang"),
    [
        ({}, True),
        ({"gpu_dram_bandwidth_share": 0.2}, False),
        ({"gpu_dram_bandwidth_share": None}, False),
        ({"gpu_graphics_active_share": 0.0}, False),
        ({"gpu_utilization_share": 0.5}, False),
    ],
    ids=["spins", "its memory is busy", "GPM is unknown", "it copies", "it is half idle"],
)
async def test_a_kernel_that_moves_no_data_spins(
    changed: dict[str, float | None], is_hang: bool
) -> None:
    readings: dict[str, float | None] = {
        "gpu_utilization_share": 1.0,
        "gpu_graphics_active_share": 1.0,
        "gpu_dram_bandwidth_share": 0.0,
        **changed,
    }
    points = [
        Point(name, value, device="gpu0") for name, value in readings.items() if value is not None
    ]
    stage = Busy()
    await stage.spin_s(30, *points, where=SYNCHRONIZE)
    found = stage.found()
    assert bool(found) == is_hang
    if is_hang:
        assert found[0].report.cause == "gpu"
        assert found[0].text.endswith("; a kernel runs in gpu0 and moves no data of its memory")


async def test_a_spin_is_recorded_once_and_ends_when_the_stack_changes() -> None:
    stage = Busy()
    await stage.spin_s(3 * DUE_S)
    assert len(stage.found()) == 1
    stage.stack = FORWARD
    await stage.work_s(2)
    assert [end.hang_ns for end in stage.put if isinstance(end, HangEnded)] == [
        stage.found()[0].at_ns
    ]


async def test_a_stack_that_changes_once_in_a_while_is_no_hang() -> None:
    stage = Busy()
    await stage.spin_s(1)
    for _ in range(10):
        await stage.work_s(DUE_S - 30)
        stage.stack = FORWARD if stage.stack == SPIN else SPIN
    assert stage.found() == []


@pytest.mark.parametrize(
    ("changed", "is_looked_at"),
    [
        ({"tells_steps": False}, False),
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
    stage = Busy()
    vars(stage).update(changed)
    await stage.spin_s(3 * DUE_S)
    assert stage.found() == []
    assert bool(stage.looks) == is_looked_at


async def test_steps_are_progress_whatever_the_stack() -> None:
    stage = Busy()
    stage.stack = SPIN
    await stage.work_s(3 * DUE_S, steps=True)
    assert (stage.found(), stage.looks) == ([], 0)


async def test_a_gpu_whose_load_changes_is_work() -> None:
    stage = Busy()
    await stage.spin_s(1)
    for second in range(2 * DUE_S):
        await stage.work_s(1, Point("gpu_utilization_share", second % 2 * 0.5, device="gpu0"))
    assert stage.found() == []


async def test_of_several_all_have_to_stand() -> None:
    stage = Busy()
    stage.members.append(Member(OTHER, None, ("python", "train.py"), "main", 1, None, "3.11.7", 1))
    await stage.spin_s(1)
    for second in range(2 * DUE_S):
        stage.watch.take(read(stage.clock.now_ns(), FORWARD if second % 2 else SPIN, OTHER))
        await stage.work_s(1)
    assert stage.found() == []
    del stage.members[1]  # it has ended: the process that is left spins
    await stage.work_s(DUE_S)
    assert len(stage.found()) == 1


async def test_recordings_that_no_longer_come_tell_nothing() -> None:
    stage = Busy()
    await stage.spin_s(DUE_S - 2 * RECORDING.whole_s - 6)
    for _ in range(100):
        stage.clock.advance(1)
        await stage.watch.check()
    assert stage.found() == []


async def test_a_hang_is_reported_with_native_frames_and_with_why_there_are_none() -> None:
    stage, asked = Stage(), list[Look]()

    def add_native(look: Look) -> tuple[Look, list[str]]:
        asked.append(look)
        standing = tuple(row._replace(native=("futex (libc.so.6)",)) for row in look.standing)
        return msgspec.structs.replace(look, standing=standing), ["rank 3: it runs on musl"]

    stage.watch.add_native = add_native
    await stage.pass_s(90)
    (hang,) = stage.found()
    assert len(asked) == 1
    assert [group.native for group in hang.report.groups] == [("futex (libc.so.6)",)]
    assert "rank 3: it runs on musl" in hang.report.facts


@pytest.mark.parametrize(
    ("has_room", "why"),
    [(True, "ValueError('a page that is gone')"), (False, "profd's budget has no room for them")],
)
async def test_a_hang_is_reported_also_if_no_native_frame_can_be_read(
    has_room: bool, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stage, may = Stage(), [True]

    def fail(look: Look) -> tuple[Look, list[str]]:
        raise ValueError("a page that is gone")

    stage.watch.add_native, stage.watch.grant = fail, lambda _: may[-1] or stage.looks < 2
    may.append(has_room)
    await stage.pass_s(90)
    (hang,) = stage.found()
    assert any(why in fact for fact in hang.report.facts), hang.report.facts
    assert "Traceback" in capsys.readouterr().err or not has_room
