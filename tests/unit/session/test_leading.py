"""Which thread of a process stands for its training, by made-up recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from support.training_stacks import BACKWARD

from profd.daemon.clock import SECOND_NS
from profd.daemon.session.leading import Leaders
from profd.daemon.store.records import (
    EventHappened,
    Frame,
    Identity,
    Interval,
    Record,
    RecordingTaken,
    Stack,
    ThreadId,
    ThreadTimeline,
)

POLL: Stack = (Frame("<module>", "/home/ada/server.py", 16),)
LOAD: Stack = (
    Frame("Thread._bootstrap", "/lib/threading.py", 1002),
    Frame("load", "/home/ada/server.py", 7),
)
MAIN, TRAINER, OTHER = 7, 8, 9


def recording(*threads: tuple[int, Sequence[Stack]], main: int = MAIN) -> RecordingTaken:
    stacks = tuple(dict.fromkeys(stack for _, seen in threads for stack in seen))
    timelines = tuple(
        ThreadTimeline(
            os_tid,
            f"thread {os_tid}",
            os_tid == main,
            tuple(Interval(at, 1, stacks.index(stack), 1) for at, stack in enumerate(seen)),
            100 * os_tid,
        )
        for os_tid, seen in threads
    )
    return RecordingTaken(Identity(7, 1), 0, 10, 100, 10, 0, 0, 0, 0, stacks, timelines)


def _seen(taken: RecordingTaken) -> Counter[tuple[int, int, str]]:
    """Return the time and the samples of each thread and stack."""
    seen: Counter[tuple[int, int, str]] = Counter()
    for thread in taken.threads:
        for one in thread.intervals:
            seen[thread.os_tid, one.stack, "ns"] += one.duration_ns
            seen[thread.os_tid, one.stack, "samples"] += one.samples
    return seen


class Session:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.leaders = Leaders(self.records.append)

    def leading(self, taken: RecordingTaken, *, has_main_ended: bool = False) -> list[int]:
        """Return the threads that lead, in the order in which each does so first."""
        marked = self.leaders.marked(taken, has_main_ended=has_main_ended)
        assert _seen(marked) == _seen(taken)
        led = [
            (one.start_ns, thread.os_tid)
            for thread in marked.threads
            if thread.is_main
            for one in thread.intervals
        ]
        names = dict.fromkeys(os_tid for _, os_tid in sorted(led))
        return list(names) or [one.os_tid for one in marked.threads if one.is_main]

    @property
    def said(self) -> list[str]:
        return [one.text for one in self.records if isinstance(one, EventHappened)]


def test_the_main_thread_leads_unless_another_one_trains() -> None:
    session = Session()
    assert session.leading(recording((MAIN, [POLL]), (OTHER, [LOAD]))) == [MAIN]
    assert session.said == []
    assert session.leading(
        recording((MAIN, [POLL]), (OTHER, [LOAD]), (TRAINER, [LOAD, BACKWARD]))
    ) == [MAIN, TRAINER]
    assert session.leaders.leader(Identity(7, 1)) == ThreadId(TRAINER, 100 * TRAINER)
    assert session.leading(recording((MAIN, [POLL]), (OTHER, [LOAD]), (TRAINER, [LOAD]))) == [
        TRAINER
    ]  # it loads for long
    assert session.leading(
        recording((MAIN, [POLL]), (OTHER, [BACKWARD]), (TRAINER, [BACKWARD]))
    ) == [TRAINER]
    assert session.said == [
        "thread thread 8 of pid 7 works for the main one: it is shown in its place"
    ]
    assert session.leading(recording((MAIN, [POLL]), (OTHER, [LOAD]))) == [
        MAIN
    ]  # its thread has ended


def test_of_two_that_train_at_the_same_time_the_one_that_led_goes_on() -> None:
    session = Session()
    assert session.leading(recording((MAIN, [BACKWARD]), (TRAINER, [BACKWARD]))) == [MAIN]
    assert session.leading(recording((MAIN, [POLL]), (OTHER, [LOAD]))) == [MAIN]
    assert session.said == []


def test_the_training_may_move_to_another_thread_and_back_within_a_recording() -> None:
    session = Session()
    assert session.leading(recording((MAIN, [BACKWARD, POLL]), (TRAINER, [LOAD, LOAD]))) == [MAIN]
    step = (*LOAD, Frame("epoch", "/home/ada/server.py", 30))
    first = recording((MAIN, [POLL] * 3), (TRAINER, [step, (*step, *BACKWARD[-2:]), LOAD]))
    assert session.leading(first) == [TRAINER]  # from its function on, not from its backward pass
    turns = recording(
        (MAIN, [POLL] * 6),
        (TRAINER, [LOAD, step, LOAD, LOAD, step, LOAD]),
        (OTHER, [LOAD, LOAD, step, step]),
    )
    marked = session.leaders.marked(turns)
    led = {
        one.os_tid: [(each.start_ns, each.duration_ns) for each in one.intervals]
        for one in marked.threads
        if one.is_main
    }
    assert led == {TRAINER: [(0, 1), (1, 1), (4, 1), (5, 1)], OTHER: [(2, 1), (3, 1)]}
    assert session.leaders.leader(Identity(7, 1)) == ThreadId(TRAINER, 100 * TRAINER)
    assert session.leading(recording((MAIN, [BACKWARD]), (TRAINER, [LOAD]))) == [MAIN]
    assert session.leaders.leader(Identity(7, 1)) is None


def test_a_stay_over_a_change_of_the_leader_is_cut_there_with_its_samples() -> None:
    session = Session()
    waits = ThreadTimeline(TRAINER, "a", False, (Interval(0, 1, 0, 1), Interval(1, 9, 1, 9)))
    trains = ThreadTimeline(OTHER, "b", False, (Interval(4, 3, 0, 3),))
    stacks = (BACKWARD, LOAD)
    taken = RecordingTaken(Identity(7, 1), 0, 10, 100, 10, 0, 0, 0, 0, stacks, (waits, trains))
    parts = session.leaders.marked(taken).threads
    assert [(one.os_tid, one.is_main, one.intervals) for one in parts] == [
        (TRAINER, True, (Interval(0, 1, 0, 1), Interval(1, 3, 1, 3))),
        (TRAINER, False, (Interval(4, 6, 1, 6),)),
        (OTHER, True, (Interval(4, 3, 0, 3),)),
    ]


def test_the_liveliest_thread_leads_once_the_main_one_has_ended_or_was_never_seen() -> None:
    session = Session()
    ended = recording((MAIN, [POLL]), (OTHER, [LOAD]), (TRAINER, [LOAD, POLL, LOAD]))
    assert session.leading(ended, has_main_ended=True) == [TRAINER]
    assert session.said == [
        "thread thread 8 of pid 7 goes on after the main one: it is shown in its place"
    ]
    without = recording((MAIN, []), (OTHER, [LOAD]), (TRAINER, [LOAD, POLL, LOAD]))
    assert Session().leading(without) == [TRAINER]
    assert Session().leading(recording((MAIN, []))) == [MAIN]


@pytest.mark.parametrize("leaf", ["Thread.join", "Thread._wait_for_tstate_lock", "join"])
def test_the_liveliest_thread_leads_while_the_main_one_only_joins(leaf: str) -> None:
    session = Session()
    joins = (*POLL, Frame(leaf, "/lib/python3.12/threading.py", 1149))
    assert session.leading(
        recording((MAIN, [joins]), (OTHER, [LOAD]), (TRAINER, [LOAD, POLL, LOAD]))
    ) == [TRAINER]
    assert session.leading(recording((MAIN, [joins, POLL]), (OTHER, [LOAD]))) == [
        MAIN
    ]  # it does something else as well
    queue = (*POLL, Frame("Queue.get", "/lib/python3.12/queue.py", 171))
    assert Session().leading(recording((MAIN, [queue]), (OTHER, [LOAD]))) == [
        MAIN
    ]  # data that come late
    assert Session().leading(recording((MAIN, [joins]))) == [MAIN]


def test_the_last_recording_of_a_process_may_come_after_its_end() -> None:
    session = Session()
    assert not session.leaders.knows(Identity(7, 1))
    session.leading(recording((MAIN, [POLL]), (TRAINER, [BACKWARD])))
    assert session.leaders.knows(Identity(7, 1))


class Running:
    """A process whose threads run for some ticks in each second, and who leads it after each."""

    def __init__(self) -> None:
        self.session, self.ran, self.second = Session(), {MAIN: 500, TRAINER: 0, OTHER: 900}, 0
        self.session.leaders = Leaders(self.session.records.append, lambda _, tid: self.ran[tid])

    def runs(self, **ticks: int) -> list[int]:
        self.second += 1
        for name, more in ticks.items():
            self.ran[{"main": MAIN, "trainer": TRAINER, "other": OTHER}[name]] += more
        taken = recording((MAIN, [POLL]), (OTHER, [LOAD]), (TRAINER, [LOAD]))
        at_ns = self.second * SECOND_NS
        return self.session.leading(msgspec.structs.replace(taken, end_ns=at_ns))


@pytest.mark.parametrize(
    ("main", "trainer", "leads"),
    [(0, 10, TRAINER), (2, 90, TRAINER), (3, 90, MAIN), (0, 9, MAIN), (2, 15, MAIN)],
)
def test_the_thread_that_runs_leads_where_the_main_one_hardly_does(
    main: int, trainer: int, leads: int
) -> None:
    running = Running()
    assert running.runs() == [MAIN]  # how long they have run says nothing of now
    assert running.runs(main=main, trainer=trainer) == [leads]


def test_of_two_that_run_the_one_that_led_goes_on_until_the_main_one_works() -> None:
    running = Running()
    running.runs()
    assert running.runs(other=40, trainer=50) == [TRAINER]
    assert running.runs(other=50, trainer=40) == [TRAINER]
    assert running.runs() == [TRAINER]  # all wait
    assert running.runs(main=90, trainer=1) == [MAIN]
    assert len(running.session.said) == 1
