"""Chains of made-up recordings of this process: when each begins and ends."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest
from support.fakerecordings import (
    LONG_S,
    FakeRecording,
    ManualClock,
    Stage,
    fail,
    hang,
    kill,
    sample,
    stage,
)
from support.present import there
from support.synthetic import identity_of
from support.waiting import DEADLINE_S, settled

from profd.daemon import processes
from profd.daemon.clock import SECOND_NS
from profd.daemon.scheduling import FreeCores
from profd.daemon.stacks import assembly
from profd.daemon.stacks import chain as chain_module
from profd.daemon.stacks.assembly import Threads
from profd.daemon.stacks.chain import Allowance, StackChain
from profd.daemon.stacks.evidence import StackEvidence
from profd.daemon.stacks.pyspy import RawRecording, RecordingFailed
from profd.daemon.stacks.reads import STOPPED, ProcessSnapshot
from profd.daemon.stacks.turns import Turns
from profd.daemon.store.records import Identity, Record, RecordingTaken
from profd.daemon.timerange import TimeRange

__all__ = ["stage"]  # a fixture: pytest finds it by its name here


async def test_recordings_follow_each_other_without_gap_or_overlap(stage: Stage) -> None:
    chain = stage.begin()
    for count in (1, 2, 3, 4):
        await stage.studio.until_made(count)
        chain.hurry()
    await stage.studio.until_made(5)
    await stage.end(chain)
    assert len(stage.taken) == 5
    assert [one.end_ns for one in stage.taken[:-1]] == [one.start_ns for one in stage.taken[1:]]
    assert stage.said == []


async def test_the_one_before_ends_only_once_the_next_one_samples(stage: Stage) -> None:
    stage.studio.directions = [sample, hang]
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    assert not first.ended.done()
    second.sampling.set_result(True)
    await asyncio.wait_for(first.ended, DEADLINE_S)
    await stage.end(chain)


def note_waits(monkeypatch: pytest.MonkeyPatch, clock: ManualClock | None = None) -> list[float]:
    """Return how long the chains wait from now on, in seconds.

    With a clock, the time passes there alone.
    """
    waited: list[float] = []
    real = StackChain._wait

    async def wait(
        self: StackChain,
        event: asyncio.Event,
        timeout_s: float,
        future: asyncio.Future[bool] | None = None,
    ) -> None:
        waited.append(timeout_s)
        if clock is not None and timeout_s != chain_module.START_TIMEOUT_S:
            clock.at_ns += round(timeout_s * SECOND_NS)
        await real(self, event, timeout_s if clock is None else 0.0, future)

    monkeypatch.setattr(StackChain, "_wait", wait)
    return waited


async def test_the_next_one_overlaps_by_three_mean_distances(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = note_waits(monkeypatch)
    stage.pace.hz = 50
    chain = stage.begin()
    await stage.studio.until_made(1)
    await stage.end(chain)
    assert 3 / 50 in waited


async def test_a_recording_has_length_and_rate_as_the_pace_says(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", 0.001)
    stage.pace.seconds = LONG_S
    chain = stage.begin()
    await stage.studio.until_made(2)
    stage.pace.hz, stage.pace.seconds = 700, 0.002
    chain.hurry()
    await stage.studio.until_made(3)
    await stage.end(chain)
    assert [made.length_s for made in stage.studio.made[:3]] == [0.001, LONG_S, 0.002]
    assert [record.rate_hz for record in stage.taken[:3]] == [1_000_000, 1_000_000, 700]


@pytest.mark.parametrize(("state", "is_asked"), [("R", False), ("S", True), ("D", True)])
async def test_a_process_at_work_is_not_asked_whether_it_is_frozen(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, state: str, is_asked: bool
) -> None:
    asked = list[int]()
    stat = msgspec.structs.replace(there(processes.read_stat(os.getpid())), state=state)

    def note(pid: int, _: int) -> bool:
        asked.append(pid)
        return False

    monkeypatch.setattr(chain_module, "is_frozen", note)
    monkeypatch.setattr(processes, "read_running", lambda *identity: stat)
    chain = stage.begin()
    chain.look()
    await stage.end(chain)
    assert bool(asked) == is_asked


async def test_recordings_stay_off_the_core_of_their_process_in_flight_and_to_come(
    stage: Stage,
) -> None:
    asked = list[int]()

    class Full(FreeCores):
        def beside(self, core: int) -> frozenset[int]:
            asked.append(core)
            return frozenset({17})

    chain = stage.begin()
    first = await stage.studio.until_made(1)
    at_first = first.cores
    chain.keep_off_core(Full())
    chain.hurry()
    second = await stage.studio.until_made(2)
    await stage.end(chain)
    assert [at_first, first.cores, second.cores] == [None, frozenset({17}), frozenset({17})]
    chain.keep_off_core(Full())  # nothing is in flight any more
    assert len(asked) == 1
    assert asked[0] in os.sched_getaffinity(0)


@pytest.mark.parametrize("by", ["stopped", "cancelled"])
async def test_a_chain_that_ends_does_not_wait_for_a_recording_not_yet_begun(
    stage: Stage, by: str
) -> None:
    stage.studio.directions = [sample, hang]
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    if by == "stopped":
        await stage.end(chain)
    else:
        stage.tasks[0].cancel()
        await asyncio.wait(stage.tasks)
    assert (first.abandoned, second.abandoned) == (by == "cancelled", True)
    assert len(stage.taken) == (by == "stopped")


@pytest.mark.parametrize("is_due", [False, True])
async def test_a_process_that_ends_ends_its_chain(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_due: bool
) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    kill(monkeypatch)
    if is_due:
        chain.hurry()
    else:
        first.stop()
    await stage.end()
    assert len(stage.studio.made) == len(stage.taken) == 1


async def test_after_exec_recording_begins_anew_with_a_gap(stage: Stage) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    first.stop()  # what py-spy does when the interpreter goes from under it
    await stage.studio.until_made(2)
    await stage.end(chain)
    assert len(stage.taken) == 2
    assert stage.taken[0].end_ns < stage.taken[1].start_ns


def note_assembled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RawRecording, Threads]]:
    """Return what is made records of from now on: the recordings, and the threads as they are
    known.
    """
    seen: list[tuple[RawRecording, Threads]] = []
    real = assembly.assemble

    def assemble(
        raw: RawRecording,
        identity: Identity,
        rate_hz: int,
        keep: TimeRange,
        threads: Threads,
        evidence: StackEvidence,
    ) -> tuple[RecordingTaken, ...]:
        seen.append((raw, threads))
        return real(raw, identity, rate_hz, keep, threads, evidence)

    monkeypatch.setattr(assembly, "assemble", assemble)
    return seen


async def test_threads_are_looked_at_while_the_process_is_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, later = {os.getpid(): os.getpid(), 77: 4177}, {99: 4199}
    monkeypatch.setattr(processes, "thread_ids", lambda pid: there)
    assembled = note_assembled(monkeypatch)
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    second = await stage.studio.until_made(2)
    kill(monkeypatch)
    monkeypatch.setattr(processes, "thread_ids", lambda pid: later)  # another has the PID now
    second.stop()
    await stage.end()
    (_, first), (_, last) = assembled
    assert [first.is_current, last.is_current] == [True, False]
    assert first.ids == last.ids == there


@pytest.mark.parametrize("directions", [[fail, fail, sample], [fail] * 12 + [sample, fail, sample]])
async def test_what_fails_is_tried_again_and_told_each_time(
    stage: Stage, directions: list[Callable[[FakeRecording], None]]
) -> None:
    stage.studio.directions = list(directions)
    chain = stage.begin()
    for count, direction in enumerate(directions, 1):
        made = await stage.studio.until_made(count)
        if direction is sample and count < len(directions):
            made.stop()
    await stage.end(chain)
    assert stage.failures == ["Failed to find python version"] * directions.count(fail)
    assert stage.said == []
    assert len(stage.taken) == directions.count(sample)


async def test_a_py_spy_that_cannot_be_started_is_a_failure_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> FakeRecording:
        raise RecordingFailed("py-spy cannot be started (No such file or directory)")

    monkeypatch.setattr(chain_module, "Recording", refuse)
    chain = stage.begin()
    while not stage.failures:
        await asyncio.sleep(0)
    await stage.end(chain)
    assert set(stage.failures) == {"py-spy cannot be started (No such file or directory)"}


async def test_one_that_never_samples_is_abandoned(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "START_TIMEOUT_S", 0.01)
    stage.studio.directions = [hang, sample]
    chain = stage.begin()
    await stage.studio.until_made(2)
    await stage.end(chain)
    assert stage.studio.made[0].abandoned
    assert len(stage.taken) == 1


async def test_a_hurry_does_not_make_failing_quicker(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "RETRY_FIRST_S", LONG_S)
    monkeypatch.setattr(chain_module, "RETRY_LAST_S", LONG_S)
    stage.studio.directions = [fail]
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    await stage.studio.until_made(2)
    assert len(stage.studio.made) == 2
    await stage.end(chain)


@pytest.mark.parametrize(
    ("data", "failure", "said"),
    [
        *((data, None, "a recording was lost: ") for data in (b"", b"garbage", b"[]]")),
        (
            None,
            "py-spy did not answer and was killed",
            "a recording was lost: py-spy did not answer and was killed",
        ),
    ],
    ids=["empty", "garbage", "no JSON", "killed"],
)
async def test_a_lost_recording_is_reported(
    stage: Stage, data: bytes | None, failure: str | None, said: str
) -> None:
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    first.data, first.failure = data, failure
    chain.hurry()
    await stage.studio.until_made(2)
    await stage.end(chain)
    ((kind, text),) = stage.said
    assert kind == "loss"
    assert text.startswith(said)
    assert len(stage.taken) == 1


async def test_failed_reads_that_are_logged_in_unknown_words_are_said_once(stage: Stage) -> None:
    chain = stage.begin()
    for number in (1, 2, 3):
        made = await stage.studio.until_made(number)
        made.errors = 7
        chain.hurry()
    await stage.studio.until_made(4)
    await stage.end(chain)
    ((kind, text),) = stage.said
    assert kind == "loss"
    assert text.startswith(
        "py-spy failed to read 7 stacks, and profd cannot read from its log when"
    )
    assert len(stage.taken) == 4


async def test_a_record_that_cannot_be_taken_breaks_the_chain_and_leaves_nothing(
    stage: Stage,
) -> None:
    def refuse(record: Record) -> None:
        raise RuntimeError("no")

    chain = StackChain("py-spy", identity_of(), stage.pace, None, stage.clock, refuse)
    task = asyncio.ensure_future(chain.run())
    await stage.studio.until_made(1)
    chain.hurry()
    await asyncio.wait({task}, timeout=DEADLINE_S)
    assert isinstance(task.exception(), RuntimeError)
    assert [made.collected or made.abandoned for made in stage.studio.made] == [True, True]


async def test_in_turns_one_is_recorded_at_a_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", 0.001)
    stage.pace.seconds = 0.001
    turns = Turns()
    chains = [stage.begin(turns) for _ in range(3)]
    for count in range(1, 8):
        await stage.studio.until_made(count)
        assert len(stage.studio.in_flight()) <= 1
    await stage.end(*chains)
    assert len(stage.taken) >= 7


async def test_in_turns_recordings_and_rests_are_short_at_first_where_it_is_unknown_what_a_process_is_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "FIRST_LENGTH_S", 0.5)
    stage.pace.seconds, stage.pace.rest_ratio, stage.pace.is_unknown = 4.0, 9.0, True
    waited = note_waits(monkeypatch, stage.clock)
    chain = stage.begin(Turns())
    begun_ns = stage.clock.at_ns
    await stage.studio.until_made(20)
    await stage.end(chain)
    eighths_s = [(made.begun_ns - begun_ns) / SECOND_NS / 8 for made in stage.studio.made]
    due_s = [min(max(eighth_s, 0.5), 4.0) for eighth_s in eighths_s]
    assert [made.length_s for made in stage.studio.made] == pytest.approx(due_s, abs=0.05)
    assert due_s[0] < due_s[8] < due_s[19]
    assert all(
        wait_s <= max(eighths_s) + 1 for wait_s in waited if wait_s != chain_module.START_TIMEOUT_S
    )


async def test_in_turns_what_is_known_rests_as_the_pace_says(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.pace.seconds, stage.pace.rest_ratio = 4.0, 9.0
    waited = note_waits(monkeypatch, stage.clock)
    chain = stage.begin(Turns())
    await stage.studio.until_made(3)
    await stage.end(chain)
    assert waited.count(36.0) >= 1


async def test_in_turns_there_is_more_to_see_of_who_used_more_cpu_or_waited_longer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, used_s = there(processes.read_running(*identity_of())), [3]
    monkeypatch.setattr(
        processes,
        "read_running",
        lambda *_: msgspec.structs.replace(
            stat, user_ticks=used_s[0] * processes.CLOCK_TICKS, system_ticks=0
        ),
    )
    turns, asked = Turns(), list[Callable[[], float]]()

    def taken(due: Callable[[], float]) -> AbstractAsyncContextManager[None]:
        asked.append(due)
        return Turns.taken(turns, due)

    monkeypatch.setattr(turns, "taken", taken)
    chain = stage.begin(turns)
    await stage.studio.until_made(1)
    at_turn = asked[0]()
    used_s[0] += 5
    assert asked[0]() - at_turn == pytest.approx(5, abs=0.01)
    stage.clock.at_ns += 50 * SECOND_NS
    assert asked[0]() - at_turn == pytest.approx(5 + 50 * chain_module.IDLE_CORES, abs=0.01)
    await stage.end(chain)
    assert asked[0]() == math.inf


async def test_in_turns_stopping_starts_nothing_more(stage: Stage) -> None:
    turns = Turns()
    chains = [stage.begin(turns) for _ in range(16)]
    await stage.studio.until_made(1)
    await stage.end(*chains)
    assert len(stage.studio.made) == len(stage.taken) == 1


async def test_in_turns_an_ended_process_leaves_the_turn_to_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns()
    for _ in range(2):
        stage.begin(turns)
    first = await stage.studio.until_made(1)
    kill(monkeypatch)
    first.stop()
    stage.pace.seconds = first.length_s = 0.0
    await stage.end()
    assert len(stage.studio.made) == 1


async def test_one_that_leaves_its_turns_is_recorded_without_a_gap_and_leaves_the_turn_to_others(
    stage: Stage,
) -> None:
    turns = Turns()
    chains = [stage.begin(turns) for _ in range(2)]
    first = await stage.studio.until_made(1)
    chains[0].leave_turns()
    await stage.studio.until_made(3)
    assert first.collected
    assert len(stage.studio.in_flight()) == 2
    chains[0].hurry()
    await stage.studio.until_made(4)
    await stage.end(*chains)


async def test_in_turns_a_hurry_serves_the_one_in_flight(stage: Stage) -> None:
    turns = Turns()
    chains = [stage.begin(turns) for _ in range(2)]
    first = await stage.studio.until_made(1)
    first.length_s = 0.0
    for chain in chains:
        chain.hurry()
    second = await stage.studio.until_made(2)
    assert first.collected
    assert not second.ended.done()
    await stage.end(*chains)


async def test_in_turns_failing_holds_no_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "RETRY_LAST_S", LONG_S)
    stage.studio.directions = [fail, sample]
    turns = Turns()
    chains = [stage.begin(turns) for _ in range(2)]
    second = await stage.studio.until_made(2)
    assert not second.ended.done()
    await stage.end(*chains)


def show(monkeypatch: pytest.MonkeyPatch, *looks: ProcessSnapshot) -> None:
    """Let the next looks at the process see this, and all that follow what the last one sees."""
    seen = itertools.chain(looks, itertools.repeat(looks[-1]))
    monkeypatch.setattr(
        chain_module, "_look_at", lambda stat, now_ns: next(seen)._replace(at_ns=now_ns)
    )


async def test_after_an_exec_was_seen_the_recording_in_flight_is_replaced(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as the recording begins, and at the looks after that
    show(monkeypatch, *[ProcessSnapshot(0, "", 1)] * 3, ProcessSnapshot(0, "", 2))
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    chain.look()
    chain.look()
    assert not first.ended.done()
    chain.look()
    await stage.studio.until_made(2)
    assert first.looks == 3
    await stage.end(chain)


async def test_an_exec_since_the_last_look_is_seen_before_the_next_recording_begins(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def look_at(_: object, now_ns: int) -> ProcessSnapshot:
        made.append(len(stage.studio.made))
        return ProcessSnapshot(now_ns, "", 1)

    monkeypatch.setattr(chain_module, "_look_at", look_at)
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.hurry()
    await stage.studio.until_made(2)
    assert made[:2] == [0, 1]
    await stage.end(chain)


async def test_what_became_of_a_process_since_the_last_look_counts_for_the_recording_that_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as the recording begins, at the look after that, and as it ends
    show(monkeypatch, *[ProcessSnapshot(0, "", 1)] * 2, ProcessSnapshot(0, STOPPED, 1))
    assembled = note_assembled(monkeypatch)
    chain = stage.begin()
    await stage.studio.until_made(1)
    chain.look()
    await stage.end(chain)
    assert [spell.state for raw, _ in assembled for spell in raw.spells] == ["", STOPPED]


async def test_a_main_thread_that_ended_before_its_process_was_read_until_it_was_seen_last(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembled, read, states = note_assembled(monkeypatch), processes.read_running, iter("SSZ")

    def read_next(pid: int, start_ticks: int) -> processes.Stat | None:
        stat, state = read(pid, start_ticks), next(states, "")
        return msgspec.structs.replace(there(stat), state=state) if state else None

    chain = stage.begin()
    await stage.studio.until_made(1)
    monkeypatch.setattr(processes, "read_running", read_next)
    chain.look()
    chain.look()
    last_ns = stage.clock.at_ns
    chain.look()
    await stage.end(chain)
    assert [threads.main_seen_ns for _, threads in assembled] == [last_ns]


async def test_why_py_spy_cannot_read_is_looked_into_while_it_cannot(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(monkeypatch, ProcessSnapshot(0), ProcessSnapshot(0))
    asked: list[int] = []

    def explain(pid: int) -> str:
        asked.append(pid)
        return "too deep"

    chain = stage.begin()
    chain.explain = explain
    first = await stage.studio.until_made(1)
    chain.look()
    assert asked == []
    first.is_failing = True
    chain.look()
    while not asked:
        await asyncio.sleep(0)
    assert asked == [os.getpid()]
    await stage.end(chain)


def costly(recording: FakeRecording) -> None:
    recording.taken_s, recording.taken_cores = 0.4, 0.9
    sample(recording)


async def test_recordings_that_cost_more_than_may_be_spent_pause_until_that_is_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "REST_S", 0.0)
    monkeypatch.setattr(chain_module, "OVERLAP_SAMPLES", 0)
    stage.pace.hz = 3
    stage.studio.directions, stage.allowance = (
        [costly],
        Allowance(cores=0.05, cpu_s=0.45, minute_s=5.6),
    )
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    # As much as the one before took, and no more.
    stage.allowance = stage.allowance._replace(cpu_s=0.45)
    chain.hurry()
    await asyncio.wait_for(first.ended, DEADLINE_S)
    await settled()
    assert len(stage.studio.made) == 1
    stage.allowance = stage.allowance._replace(cpu_s=0.55)
    second = await stage.studio.until_made(2)
    stage.allowance = stage.allowance._replace(cores=1.0)  # others have ended
    chain.hurry()
    await stage.studio.until_made(3)
    assert second.length_s == 0
    await stage.end(chain)
    assert [text for _, text in stage.said] == [
        "to sample it takes 90% of a core even at the lowest rate: recordings pause for as long "
        "as profd's budget needs"
    ]


def of_threads(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Let processes have so many threads."""
    read = processes.read_running

    def read_many(pid: int, start_ticks: int) -> processes.Stat | None:
        return msgspec.structs.replace(there(read(pid, start_ticks)), threads=threads)

    monkeypatch.setattr(processes, "read_running", read_many)


def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a chain look at its budget all the time; a recording that it breaks off has no sample."""

    def give_up(self: FakeRecording) -> None:
        if not self.sampling.done():
            self.sampling.set_result(False)
        # py-spy is reaped a while later, after some more looks at the budget.
        asyncio.get_running_loop().call_later(0, asyncio.ensure_future, reap(self))

    async def reap(recording: FakeRecording) -> None:
        await settled()
        recording.stop()

    for name in ("REST_S", "WATCH_S", "OVERLAP_SAMPLES"):
        monkeypatch.setattr(chain_module, name, 0)
    monkeypatch.setattr(FakeRecording, "abandon", give_up)


def endless(recording: FakeRecording) -> None:
    recording.taken_s = 3.0
    recording.failure = "py-spy> Sampling process 3 times a second"


def dear(recording: FakeRecording) -> None:
    endless(recording)
    recording.has_one = False
    recording.sampling.set_result(True)


@pytest.mark.parametrize("direction", [endless, dear])
async def test_a_recording_that_takes_more_than_is_left_is_ended_and_tried_again_with_most_of_a_minute(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, direction: Callable[[FakeRecording], None]
) -> None:
    without_waiting(monkeypatch)
    stage.pace.hz = 3
    stage.studio.directions, stage.allowance = (
        [direction, sample],
        Allowance(cores=0.05, cpu_s=1.9, minute_s=5.6),
    )
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    await asyncio.wait_for(first.ended, DEADLINE_S)
    await settled()
    assert len(stage.studio.made) == 1
    stage.allowance = stage.allowance._replace(cpu_s=4.3)  # most of a minute
    await stage.studio.until_made(2)
    await stage.end(chain)
    assert [text for _, text in stage.said] == [
        "what profd's budget leaves of this minute, 1.9 s of CPU, was not enough for one recording "
        "of it: none is taken until the next minute"
    ]
    assert stage.failures == [], "nothing is wrong with the process"


async def test_a_recording_that_a_minute_does_not_suffice_for_is_tried_with_most_of_a_minute(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_waiting(monkeypatch)
    of_threads(monkeypatch, 5_000)
    stage.pace.hz, stage.studio.directions = 3, [endless]
    stage.allowance = Allowance(cores=0.1, cpu_s=4.2, minute_s=4.2)
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    await asyncio.wait_for(first.ended, DEADLINE_S)
    assert {text.split(",")[1] for _, text in stage.said} == {" 2.8 s of CPU"}
    await stage.end(chain)


async def test_a_recording_that_takes_much_ends_early(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "WATCH_S", 0.0)
    monkeypatch.setattr(chain_module, "OVERLAP_SAMPLES", 0)
    stage.pace.hz, stage.allowance = 3, Allowance(cores=1.0, cpu_s=5.6, minute_s=5.6)
    chain = stage.begin()
    first = await stage.studio.until_made(1)
    assert not first.ended.done()
    first.has_one, first.taken_s = False, 2 * chain_module.ENOUGH_S
    await settled()
    assert not first.ended.done(), "it has no sample yet"
    first.has_one = True
    await asyncio.wait_for(first.ended, DEADLINE_S)
    await stage.end(chain)


async def test_threads_that_come_later_end_the_recording_in_flight_and_the_next_one_waits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "OVERLAP_SAMPLES", 0)
    read, threads, grew = processes.read_running, [1], list[int]()

    def running(pid: int, start_ticks: int) -> processes.Stat | None:
        return msgspec.structs.replace(there(read(pid, start_ticks)), threads=threads[-1])

    def take(count: int) -> None:
        grew.append(count)
        stage.pace.hz, stage.allowance = 3, Allowance(cores=0.1, cpu_s=1.0, minute_s=5.6)

    monkeypatch.setattr(processes, "read_running", running)
    stage.pace.hz = 100
    chain = stage.begin()
    chain.grew = take
    first = await stage.studio.until_made(1)
    threads.append(40)  # a training with its pools takes less than a core
    chain.look()
    assert not grew
    threads.append(2_000)
    chain.look()
    chain.look()
    await asyncio.wait_for(first.ended, DEADLINE_S)
    await settled()
    assert grew == [2_000]
    assert chain.is_resting
    assert len(stage.studio.made) == 1
    await stage.end(chain)


async def test_of_thousands_of_threads_the_first_recording_too_waits_until_it_can_be_paid(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_waiting(monkeypatch)
    of_threads(monkeypatch, 2_000)
    stage.pace.hz, stage.allowance = 3, Allowance(cores=0.1, cpu_s=2.0, minute_s=5.6)
    stage.studio.directions = [costly]
    chain = stage.begin()
    await settled()
    assert chain.is_resting
    assert not stage.studio.made
    await stage.allow(cpu_s=0.0, minute_s=0.0)
    assert not stage.studio.made, "nothing is left at all"
    stage.allowance = stage.allowance._replace(cpu_s=2.0, minute_s=5.6)
    await stage.allow(cpu_s=2.4, minute_s=2.6)
    assert not stage.studio.made, "it is known to take more"
    await stage.allow(cpu_s=3.0, minute_s=5.6, kept_s=0.8)
    assert not stage.studio.made, "a part of it is kept for others"
    stage.allowance = stage.allowance._replace(kept_s=0.0, early_s=5.6)
    first = await stage.studio.until_made(1)
    assert first.length_s == 0
    await asyncio.wait_for(first.ended, DEADLINE_S)
    await settled()
    assert len(stage.studio.made) == 1, "once there is a sample, the rest of the minute waits"
    stage.allowance = stage.allowance._replace(early_s=0.1)
    await stage.studio.until_made(2)
    await stage.end(chain)
