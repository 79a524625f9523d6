"""The rows of a data set out of one run file: runs, minutes of threads, readings, and steps.

The columns are those of ``dataset.TABLES``, in their order. A long run is read from its rollups,
and what these do not cover interval by interval: both say the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.coverage import take_lives
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex, own_frame, training_range
from profd.daemon.analyze.profile import process_weights
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.series import CoursePart, SeriesCourse, take_course
from profd.daemon.analyze.steps import counts_of, take_steps
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.compare.blocks import BLOCKS
from profd.daemon.exports.tables import Value, Values
from profd.daemon.findings.catalog import findings_in
from profd.daemon.findings.finding import Line
from profd.daemon.fleet.dataset import TABLES
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rollups import stack_minutes
from profd.daemon.store.rows import FrameRow, ProcessRow
from profd.daemon.timerange import EVER, TimeRange


class Minute(msgspec.Struct):
    """A thread in one stack over the minute that begins at ``minute_ns``.

    ``time_ns`` is how long it stood there, and ``gpu_idle_ns`` how much of ``gpu_known_ns`` its
    GPUs were idle by their mean utilization; all of the time that the process lived, of which no
    more than a part may have been recorded.
    """

    thread: int
    stack: int
    minute_ns: int
    samples: int = 0
    time_ns: float = 0.0
    gpu_known_ns: float = 0.0
    gpu_idle_ns: float = 0.0


def take_minutes(reader: RunReader) -> Iterator[Minute]:
    """Yield the minutes of all threads, those of a thread in order of time."""
    weights = process_weights(reader, take_lives(reader))
    found: dict[tuple[int, int, int], Minute] = {}
    for part in _parts(reader):
        minute = found.setdefault((part.thread, part.minute_ns, part.stack), part)
        if minute is not part:
            minute.samples += part.samples
            minute.time_ns += part.time_ns
            minute.gpu_known_ns += part.gpu_known_ns
            minute.gpu_idle_ns += part.gpu_idle_ns
    for key in sorted(found):
        minute = found.pop(key)
        weight = weights[reader.threads[minute.thread].process]
        minute.time_ns *= weight
        minute.gpu_known_ns *= weight
        minute.gpu_idle_ns *= weight
        yield minute


def _parts(reader: RunReader) -> Iterator[Minute]:
    """Yield all time of the run, once each: by rollups, and by intervals outside of them."""
    started_ns = reader.info.started_ns
    for one in reader.rollups.split(EVER, reader.threads):
        for row in stack_minutes(reader, one.threads, one.minutes):
            start_ns, idle_ns = started_ns + row.minute * MINUTE_NS, row.known_ns - row.busy_ns
            times = row.duration_ns, row.known_ns, idle_ns
            yield Minute(row.thread, row.stack, start_ns, row.samples, *times)
        for rest in one.rest:
            tracks = GpuTracks(reader, rest)
            for interval in reader.intervals(rest, one.threads):
                track = tracks.of_process(reader.threads[interval.thread].process)
                start_ns, duration_ns = interval.start_ns, interval.duration_ns
                busy, known_ns = track.mean(start_ns, start_ns + duration_ns)
                start_ns -= (start_ns - started_ns) % MINUTE_NS
                times = duration_ns, known_ns, (1 - busy) * known_ns
                yield Minute(interval.thread, interval.stack, start_ns, interval.samples, *times)


StepCount = tuple[int, int, float]
"""The time from which on steps are counted, for how long, and their number.

Parts of steps count.
"""


def _by_counter(reader: RunReader, process: ProcessRow) -> Iterator[StepCount]:
    """Yield the steps from the first count of each minute to that of the next, or to the last."""
    started_ns = reader.info.started_ns
    for points in counts_of(reader, process.id, Selection()).pieces:
        firsts = {(point.at_ns - started_ns) // MINUTE_NS: point for point in reversed(points)}
        for before, after in itertools.pairwise([*reversed(firsts.values()), points[-1]]):
            if after.at_ns > before.at_ns and after.value >= before.value:
                yield before.at_ns, after.at_ns - before.at_ns, after.value - before.value


def _by_cycles(reader: RunReader, process: ProcessRow, phases: PhaseIndex) -> Iterator[StepCount]:
    """Yield the steps of equal parts of the training, if they are known."""
    whole = msgspec.structs.replace(MAIN_THREADS, processes=frozenset({process.id}))
    found = training_range(reader, whole, phases)
    if found is None:
        return
    for part in found.cut(BLOCKS):
        rate = take_steps(reader, whole.during(part), phases).per_s
        if rate:
            yield part.from_ns, part.length_ns, rate * part.length_ns / SECOND_NS


class Row(NamedTuple):
    """A row with its time and rank, for its partition.

    The rank is None if it is of none or of all.
    """

    at_ns: int
    rank: int | None
    values: Values


class RunSource:
    """A run file, with what the rows of several tables need."""

    def __init__(self, reader: RunReader) -> None:
        self.reader, self.phases, self.tracks = reader, PhaseIndex(reader), GpuTracks(reader)
        # Two nodes may well begin runs of one name in one second.
        self.run = f"{reader.info.id}@{reader.info.host}"
        self.trainers = Selection().trainers(reader)
        self.seen: set[int] = set()
        """The stacks that samples were seen in."""

    def gpus(self, process: ProcessRow) -> int:
        return len(self.tracks.used_by(process.id))

    def lived_ns(self, process: ProcessRow, time: TimeRange) -> int:
        """Return for how long a process lived in a range of time, as far as recordings show."""
        known = TimeRange(to_ns=take_lives(self.reader).known_to_ns)
        return process.life.within(known).within(time).length_ns


def _samples(source: RunSource) -> Iterator[Row]:
    reader = source.reader
    for minute in take_minutes(reader):
        thread = reader.threads[minute.thread]
        process = reader.processes[thread.process]
        source.seen.add(minute.stack)
        time_ns = round(minute.time_ns)
        known_ns = min(round(minute.gpu_known_ns), time_ns)
        idle_ns = min(round(minute.gpu_idle_ns), known_ns)
        place = (source.run, process.pid, process.role, thread.name, thread.is_main)
        sums = (minute.samples, time_ns, known_ns, idle_ns)
        values = (*place, minute.minute_ns, minute.stack, *sums)
        yield Row(minute.minute_ns, process.rank, values)


def _stacks(source: RunSource) -> Iterator[Row]:
    """Yield the stacks that were seen, after the samples."""
    for stack in sorted(source.seen):
        frames = source.reader.frames_of(stack)
        leaf = frames[-1]
        path = ";".join(frame.label for frame in frames)
        phase = source.phases.of_stack(stack)
        places = (*_place(leaf), *_place(own_frame(frames)))
        values = (source.run, stack, phase, *places, path)
        yield Row(source.reader.info.started_ns, None, values)


def _place(frame: FrameRow | Line | None) -> tuple[Value, Value, Value]:
    return (None, None, None) if frame is None else (frame.function, frame.file, frame.line)


def _series(source: RunSource) -> Iterator[Row]:
    """Yield all series by the minute, those of short runs by the reading."""
    reader = source.reader
    for series in reader.list_series():
        process = reader.processes.get(series.process or 0)
        pid, rank = (None, None) if process is None else (process.pid, process.rank)
        for at_ns, known_ns, *values in _means(reader, take_course(reader, series.id)):
            place = (source.run, pid, series.os_tid, series.device, series.name)
            yield Row(at_ns, rank, (*place, at_ns, known_ns, *values))


ReadingValues = tuple[int, int, float, float, float]
"""Time, duration, mean, least and highest value of a reading or minute."""


def _means(reader: RunReader, course: SeriesCourse) -> Iterator[ReadingValues]:
    yield from _readings(course.head)
    for one in course.minutes:
        start_ns = reader.info.started_ns + one.minute * MINUTE_NS
        yield start_ns, one.known_ns, one.aggregate.mean or 0.0, one.least, one.most
    yield from _readings(course.tail)


def _readings(part: CoursePart) -> Iterator[ReadingValues]:
    for step in part.steps():
        yield step.end_ns, step.end_ns - step.start_ns, step.value, step.value, step.value


def _steps(source: RunSource) -> Iterator[Row]:
    """Yield the steps of each process with a counter, else of the first with steps in stacks."""
    trainers = sorted(source.trainers, key=attrgetter("by_rank"))
    counted = [(row, one) for row in trainers for one in _by_counter(source.reader, row)]
    if not counted:
        by_cycles = (
            [(row, one) for one in _by_cycles(source.reader, row, source.phases)]
            for row in trainers
        )
        counted = next(filter(None, by_cycles), [])
    for process, (at_ns, duration_ns, steps) in counted:
        yield Row(at_ns, process.rank, (source.run, process.pid, at_ns, duration_ns, steps))


def _findings(source: RunSource) -> Iterator[Row]:
    for finding in findings_in(source.reader, MAIN_THREADS, source.phases):
        evidence = finding.evidence
        words = (source.run, finding.rule, finding.severity, finding.label, finding.title)
        # The time of ranks, and of their GPUs, that a fix can give back at most; 0 if it is not
        # known.
        share = 1 - 1 / max(finding.gain_bound or 1.0, 1.0)
        time = TimeRange(evidence.from_ns, evidence.to_ns)
        lived = [(source.lived_ns(row, time), source.gpus(row)) for row in source.trainers]
        lost = (sum(ns for ns, _ in lived), sum(ns * gpus for ns, gpus in lived))
        times = (*time, *(round(share * ns) for ns in lost))
        values = (*words, *_place(evidence.line), finding.gain_bound, *times)
        yield Row(source.reader.info.started_ns, None, values)


def _runs(source: RunSource) -> Iterator[Row]:
    info, placements = source.reader.info, source.reader.placements()
    model = next((device.model for device in source.reader.devices()), None)
    for process in source.trainers:
        place, gpus = placements.get(process.id), source.gpus(process)
        command, version = " ".join(info.command), info.versions.get("profd")
        words = (info.id, info.name, info.host, command, version, info.state)
        times = (info.started_ns, info.end_ns, source.lived_ns(process, info.time))
        ranks = (place.local_rank, place.world_size) if place else (None, None)
        values = (source.run, process.pid, *words, *times, gpus, model if gpus else None, *ranks)
        yield Row(info.started_ns, process.rank, values)


_YIELD = (_samples, _stacks, _series, _steps, _findings, _runs)
ROWS: Mapping[str, Callable[[RunSource], Iterator[Row]]] = dict(zip(TABLES, _YIELD, strict=True))
"""By table what yields its rows; ``stacks`` after ``samples``."""
