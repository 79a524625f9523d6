"""From readings to counts: what is found, followed, lost and found again, and how seldom it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from support.clocks import StoppedClock
from support.loopmodels import COST_S, TRAIN, Nested, Plain, Watched, reading_at

from profd.daemon.clock import SECOND_NS, AnchoredClock
from profd.daemon.collect.steps import reader as step_reader
from profd.daemon.collect.steps.cadence import Cadence, Wish
from profd.daemon.collect.steps.counter import CounterReading, CounterUnread, Place
from profd.daemon.collect.steps.odometer import Count
from profd.daemon.collect.steps.reader import LAST_TRIES, StepCounter, StepReader
from profd.daemon.store.records import EventHappened, Identity, PointsTaken, Record

FINE_TUNE = Place(1, "fine_tune", "train.py")
PID = Identity(4242, 1000)


def take_all(counter: StepCounter, readings: Iterator[CounterReading] | list[CounterReading]) -> list[Count]:
    return [count for reading in readings for count in counter.take(reading)]


def test_counts_reach_back_to_the_readings_that_the_loop_was_found_by() -> None:
    counts = take_all(StepCounter(), [reading_at(k / 2, {TRAIN: {"i": 10 * k}}) for k in range(10)])
    assert [count.steps for count in counts] == [10 * k for k in range(10)]
    assert counts[0].at_ns == 0


def test_another_loop_goes_on_where_the_first_one_ended() -> None:
    counter = StepCounter()
    first = take_all(counter, [reading_at(5 * k, {TRAIN: {"i": 100 * k}}) for k in range(10)])
    later = take_all(counter, [reading_at(100 + 5 * k, {FINE_TUNE: {"step": 70 * k}}) for k in range(15)])
    assert counter.loop is not None
    assert counter.loop.counter.name == "step"
    assert later[0].steps == first[-1].steps
    assert later[-1].steps - later[0].steps == 70 * (len(later) - 1)


def epochs(*seen: tuple[float, int, int]) -> list[CounterReading]:
    """Return readings of (seconds, epoch, batch), after the ten that a loop is found by."""
    found = [reading_at(k / 2, {TRAIN: {"epoch": 0, "i": 10 * k}}) for k in range(10)]
    return [*found, *(reading_at(at_s, {TRAIN: {"epoch": epoch, "i": batch}}) for at_s, epoch, batch in seen)]


def test_counts_that_are_held_back_are_not_lost_to_another_loop() -> None:
    counter = StepCounter()
    first = take_all(counter, epochs((20, 1, 20), (25, 1, 120)))
    later = take_all(counter, [reading_at(100 + 5 * k, {FINE_TUNE: {"step": 70 * k}}) for k in range(15)])
    assert first[-1].at_ns < 5 * SECOND_NS
    assert [count.at_ns // SECOND_NS for count in later[:3]] == [20, 25, 100]
    assert later[1].steps - later[0].steps == 100
    assert later[2].steps == later[1].steps


def test_a_loop_that_is_away_for_a_while_is_waited_for() -> None:
    counter = StepCounter()
    take_all(counter, [reading_at(5 * k, {TRAIN: {"i": 100 * k}}) for k in range(10)])
    aside = [reading_at(50 + k, {Place(1, "evaluate", "train.py"): {"j": k * k % 17}}) for k in range(20)]
    assert take_all(counter, aside) == []
    back = [reading_at(71, {TRAIN: {"i": 930}}), reading_at(72, {TRAIN: {"i": 950}})]
    assert [count.steps for count in take_all(counter, back)] == [930, 950]


def test_a_loop_that_was_seen_beside_another_goes_on_where_that_one_ended() -> None:
    """A progress bar's count is found first and seen now and then; the loop's own was there in between."""
    counter = StepCounter()
    bar = {Place(2, "tqdm.__iter__", "tqdm/std.py"): "n"}
    shown = [bar] * 9 + [{TRAIN: "i"}, bar, {TRAIN: "i"}, {TRAIN: "i"}, bar] * 4 + [{TRAIN: "i"}] * 14
    times = [1.3 * number for number in range(len(shown))]
    readings = [
        reading_at(at_s, {place: {name: int(5 * at_s)} for place, name in names.items()}, declared="in")
        for at_s, names in zip(times, shown, strict=True)
    ]
    counts: list[Count] = []
    names_found: list[str] = []
    for reading in readings:
        counts += counter.take(reading)
        names_found += [counter.loop.counter.name] if counter.loop else []
    assert (names_found[0], names_found[-1]) == ("n", "i")
    at_ns = [count.at_ns for count in counts]
    assert at_ns == sorted(set(at_ns))
    assert all(abs(count.steps - 5 * count.at_ns / SECOND_NS) <= 2 for count in counts)


def test_what_turns_out_to_be_no_counter_is_forgotten() -> None:
    counter = StepCounter()
    take_all(counter, [reading_at(k / 2, {TRAIN: {"i": 10 * k}}) for k in range(10)])
    take_all(counter, [reading_at(5 + k, {TRAIN: {"i": 10_000 - 90 * k}}) for k in range(10)])
    assert counter.loop is None


def test_a_loop_that_makes_sense_is_read_again_in_its_own_time() -> None:
    counter = StepCounter()
    take_all(counter, [reading_at(k / 2, {TRAIN: {"i": 10 * k}}) for k in range(10)])
    assert counter.wish() == Wish(5.0, is_urgent=False)
    counter.take(reading_at(10, {TRAIN: {"i": 3}}))
    assert counter.wish() == Wish(1.0, is_urgent=True)


def test_what_may_be_a_counter_is_read_at_short_distances() -> None:
    """And what hardly moves at long ones: else nothing would be seen of it."""
    quick, slow = StepCounter(), StepCounter()
    take_all(quick, [reading_at(k / 4, {TRAIN: {"i": 5 * k}}) for k in range(7)])
    take_all(slow, [reading_at(k / 4, {TRAIN: {"i": k}}) for k in range(7)])
    assert quick.loop is slow.loop is None
    assert quick.wish().pause_s < 0.4 < slow.wish().pause_s


def test_what_was_on_the_stack_once_is_soon_looked_for_again() -> None:
    """A progress bar's counter is there only while the loop waits for its next item, and most readings miss it."""
    seen, unseen = StepCounter(), StepCounter()
    seen.take(reading_at(0, {TRAIN: {"n": 1}}))
    for counter in (seen, unseen):
        take_all(counter, [reading_at(1 + k, {}) for k in range(5)])
    assert seen.wish().pause_s < 1 < 3 < unseen.wish().pause_s


def test_a_search_in_vain_becomes_rarer_and_rarer() -> None:
    counter = StepCounter()
    pauses_s = []
    for k in range(60):
        counter.take(reading_at(k, {TRAIN: {"layer": k % 3}}))
        pauses_s.append(counter.wish().pause_s)
    assert pauses_s == sorted(pauses_s)
    assert pauses_s[0] < 0.5
    assert pauses_s[-1] == 30


@pytest.mark.parametrize(
    "program",
    [
        Plain(20),
        Plain(0.5),
        Nested(20, 200, 0.5),
        Nested(20, 100, shows_epoch=False),
        Nested(1e6, 7, shows_epoch=False),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_readings_cost_little(program: Plain | Nested, seed: int) -> None:
    """At 16 ms of CPU time each: 5 ms a second over the first minute, 2 ms a second afterwards."""
    watched = Watched(program, 660, seed)
    first = sum(at_s < 60 for at_s in watched.read_s)
    assert first * COST_S / 60 <= 0.005
    assert (len(watched.read_s) - first) * COST_S / 600 <= 0.002 + COST_S / 600


class Stub:
    """A process that lives for some readings, and gives them or fails."""

    def __init__(self, readings: list[CounterReading | CounterUnread]) -> None:
        self._readings = list(reversed(readings))

    def is_running(self, *_: object) -> bool:
        return bool(self._readings)

    def read(self, *_: object) -> CounterReading:
        reading = self._readings.pop()
        if isinstance(reading, CounterUnread):
            raise reading
        return reading


async def stored(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    monkeypatch.setattr(step_reader, "read_counter", stub.read)
    monkeypatch.setattr("profd.daemon.collect.steps.reader.processes.is_running", stub.is_running)
    monkeypatch.setattr(Cadence, "pause_s", lambda *_: 0.0)
    records: list[Record] = []
    reader = StepReader("py-spy", PID, AnchoredClock(), records.append)
    await asyncio.wait_for(reader.run(), 30)
    return records


async def test_counts_are_stored_with_their_error_and_the_counter_is_named_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[CounterReading | CounterUnread] = [
        reading_at(k / 2, {TRAIN: {"token": 7, "i": 10 * k}}) for k in range(10)
    ]
    records = await stored(Stub([CounterUnread(0), *found, CounterUnread(0)]), monkeypatch)
    points = [record for record in records if isinstance(record, PointsTaken)]
    assert [record.at_ns for record in points] == [k * SECOND_NS // 2 for k in range(10)]
    assert [point.value for record in points for point in record.points if point.name == "step_count"] == [
        10.0 * k for k in range(10)
    ]
    assert {point.name for record in points for point in record.points} == {"step_count", "step_count_error"}
    events = [record for record in records if isinstance(record, EventHappened)]
    assert [(event.kind, event.text, event.identity) for event in events] == [
        ("counter", "loop counter `i` in train (train.py:21)", PID)
    ]


@pytest.mark.parametrize(
    ("missed", "readings", "counts"), [(0, 1, 1), (3, 4, 1), (LAST_TRIES - 1, LAST_TRIES, 1), (99, LAST_TRIES, 0)]
)
async def test_a_reader_that_is_closed_reads_until_it_sees_the_counter_once_more(
    monkeypatch: pytest.MonkeyPatch, missed: int, readings: int, counts: int
) -> None:
    found, last = asyncio.Event(), list[int]()

    def read(*_: object) -> CounterReading:
        k = len(taken)
        taken.append(k)
        if found.is_set():
            last.append(k)
        away = found.is_set() and len(last) <= missed
        return reading_at(k / 2, {FINE_TUNE: {"left": 3}} if away else {TRAIN: {"i": 10 * k}})

    taken: list[int] = []
    monkeypatch.setattr(step_reader, "read_counter", read)
    monkeypatch.setattr("profd.daemon.collect.steps.reader.processes.is_running", lambda *_: True)
    monkeypatch.setattr(Cadence, "pause_s", lambda *_: 600.0 if found.is_set() else 0.0)
    records: list[Record] = []

    def put(record: Record) -> None:
        records.append(record)
        if isinstance(record, EventHappened):
            found.set()

    reader = StepReader("py-spy", PID, AnchoredClock(), put)
    running = asyncio.ensure_future(reader.run())
    await asyncio.wait_for(found.wait(), 30)
    before = sum(isinstance(record, PointsTaken) for record in records)
    reader.close()
    await asyncio.wait_for(running, 30)
    assert len(last) == readings
    assert sum(isinstance(record, PointsTaken) for record in records) == before + counts


async def test_a_reader_that_has_found_nothing_just_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_reader, "read_counter", lambda *_: pytest.fail("there is nothing to read"))
    monkeypatch.setattr("profd.daemon.collect.steps.reader.processes.is_running", lambda *_: True)
    reader = StepReader("py-spy", PID, AnchoredClock(), lambda _: None)
    reader.close()
    await asyncio.wait_for(reader.run(), 30)


async def test_nothing_is_read_while_a_young_process_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.daemon.collect.steps.reader.processes.uptime_s", lambda: 12.0)  # it started at 10
    monkeypatch.setattr("profd.daemon.collect.steps.reader.processes.is_running", lambda *_: True)
    read = asyncio.Event()
    loop = asyncio.get_running_loop()

    def note(*_: object) -> CounterReading:
        loop.call_soon_threadsafe(read.set)
        raise CounterUnread(0)

    monkeypatch.setattr(step_reader, "read_counter", note)
    reader = StepReader("py-spy", PID, AnchoredClock(), lambda _: None)
    running = asyncio.ensure_future(reader.run())
    reader.see(is_importing=True)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not read.is_set()
    reader.see(is_importing=False)
    await asyncio.wait_for(read.wait(), 30)
    running.cancel()


def test_a_bar_that_samples_show_is_looked_for_again_and_again() -> None:
    counter, unaware = StepCounter(), StepCounter()
    for each in (counter, unaware):
        take_all(each, [reading_at(k, {}) for k in range(4)])
    counter.expect_bar(True)
    assert counter.wish().pause_s < 0.5 < unaware.wish().pause_s
    for each in (counter, unaware):
        take_all(each, [reading_at(4 + k, {}) for k in range(8)])
        each.expect_bar(each is counter)
    assert counter.wish().pause_s < 1
    assert unaware.wish().pause_s > 10
    counter.expect_bar(False)
    take_all(counter, [reading_at(20 + k, {}) for k in range(8)])
    assert counter.wish().pause_s > 10


async def test_a_bar_is_expected_for_a_minute_after_samples_showed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = StoppedClock(0), list[float]()

    def pause(_: Cadence, wish: Wish) -> float:
        pauses.append(wish.pause_s)
        clock.advance(20)
        return 0.0

    monkeypatch.setattr(step_reader, "read_counter", lambda *_: reading_at(clock.at_ns // SECOND_NS, {}))
    monkeypatch.setattr("profd.daemon.collect.steps.reader.processes.is_running", lambda *_: len(pauses) < 8)
    monkeypatch.setattr(Cadence, "pause_s", pause)
    reader = StepReader("py-spy", PID, clock, lambda _: None)
    reader.see(is_importing=False, has_bar=True)
    await asyncio.wait_for(reader.run(), 30)
    assert max(pauses[:3]) < 0.5
    assert pauses[-1] > 2


def test_what_is_read_of_an_import_is_no_part_of_a_search() -> None:
    counter = StepCounter()
    importing = [msgspec.structs.replace(reading_at(k, {TRAIN: {"i": 10 * k}}), is_importing=True) for k in range(20)]
    assert take_all(counter, importing) == []
    assert counter.loop is None
    assert counter.wish().pause_s == 30
    counter.take(reading_at(21, {TRAIN: {"i": 0}}))
    assert counter.wish().pause_s < 1


async def test_counts_that_are_held_back_are_stored_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    records = await stored(Stub(list(epochs((20, 1, 20), (25, 1, 120)))), monkeypatch)
    points = [record for record in records if isinstance(record, PointsTaken)]
    assert [record.at_ns // SECOND_NS for record in points[-2:]] == [20, 25]


async def test_nothing_is_stored_of_a_program_without_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[CounterReading | CounterUnread] = [
        reading_at(k / 2, {TRAIN: {"secret": 123456, "layer": k % 3}}) for k in range(15)
    ]
    assert await stored(Stub(readings), monkeypatch) == []
