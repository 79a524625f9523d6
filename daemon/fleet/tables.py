"""The rows of a data set out of one run file: what of the run is worth keeping beside thousands of others.

The columns are those of ``layout.TABLES``, in their order. Knows nothing of files to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from profd.daemon.analyze.course import Course, take_course
from profd.daemon.analyze.findings.finding import Finding
from profd.daemon.analyze.findings.stored import findings_in
from profd.daemon.analyze.gpu.usage import GpuTracks
from profd.daemon.analyze.lives import take_lives
from profd.daemon.analyze.phases import PhaseIndex, own_frame
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.fleet.minutes import take_minutes
from profd.daemon.fleet.stepcounts import take_step_counts
from profd.daemon.render.exports.tidytables import Value
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, ProcessRow
from profd.daemon.store.sums.held import MINUTE_NS


class Row(NamedTuple):
    """A row, and what tells its partition: when it was, and of which rank; None: of none, or of all."""

    at_ns: int
    rank: int | None
    values: tuple[Value, ...]


class Source:
    """A run file that is being taken apart."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self.phases = PhaseIndex(reader)
        self.tracks = GpuTracks(reader)
        self.run = run_key(reader)
        self.seen: set[int] = set()
        """The stacks that samples were seen in."""

    @cached_property
    def trainers(self) -> tuple[ProcessRow, ...]:
        """The training processes."""
        return tuple(row for row in self.reader.processes.values() if row.role == "main")

    def gpus(self, process: ProcessRow) -> int:
        """Return how many GPUs a process uses."""
        return len(self.tracks.used_by(process.id))

    def lived_ns(self, process: ProcessRow, from_ns: int, to_ns: int) -> int:
        """Return for how long a process lived in a range of time, as far as recordings tell."""
        known_ns = take_lives(self.reader).known_to_ns
        ended_ns = known_ns if process.ended_ns is None else min(process.ended_ns, known_ns)
        return max(min(ended_ns, to_ns) - max(process.seen_ns, from_ns), 0)


def run_key(reader: RunReader) -> str:
    """Return what tells a run from all others: two nodes may well begin runs of one name in one second."""
    return f"{reader.info.id}@{reader.info.host}"


def _samples(source: Source) -> Iterator[Row]:
    reader = source.reader
    for minute in take_minutes(reader):
        thread = reader.threads[minute.thread]
        process = reader.processes[thread.process]
        source.seen.add(minute.stack)
        known_ns = min(round(minute.gpu_known_ns), round(minute.time_ns))
        values = (
            source.run,
            process.pid,
            process.role,
            thread.name,
            thread.is_main,
            minute.minute_ns,
            minute.stack,
            minute.samples,
            round(minute.time_ns),
            known_ns,
            min(round(minute.gpu_idle_ns), known_ns),
        )
        yield Row(minute.minute_ns, process.rank, values)


def _stacks(source: Source) -> Iterator[Row]:
    """Yield the stacks that were seen, after the samples."""
    for stack in sorted(source.seen):
        frames = source.reader.frames_of(stack)
        leaf = frames[-1]
        own = own_frame(frames)
        path = ";".join(frame.label for frame in frames)
        phase = source.phases.of_stack(stack)
        values = (source.run, stack, phase, leaf.function, leaf.file, leaf.line, *_place(own), path)
        yield Row(source.reader.info.started_ns, None, values)


def _place(frame: FrameRow | None) -> tuple[Value, Value, Value]:
    return (None, None, None) if frame is None else (frame.function, frame.file, frame.line)


def _series(source: Source) -> Iterator[Row]:
    """Yield all series by the minute, those of short runs by the reading."""
    reader = source.reader
    for series in reader.series.values():
        process = None if series.process is None else reader.processes[series.process]
        pid, rank = (None, None) if process is None else (process.pid, process.rank)
        for values in _parts(reader, take_course(reader, series.id, None, None)):
            yield Row(values[0], rank, (source.run, pid, series.os_tid, series.device, series.name, *values))


def _parts(reader: RunReader, course: Course) -> Iterator[tuple[int, int, float, float, float]]:
    """Yield of each reading or minute its time, for how long it holds, its mean, least and highest value."""
    for step in course.head.steps():
        yield step.end_ns, step.end_ns - step.start_ns, step.value, step.value, step.value
    for one in course.minutes:
        mean = one.aggregate.mean or 0.0
        yield reader.info.started_ns + one.minute * MINUTE_NS, one.known_ns, mean, one.least, one.most
    for step in course.tail.steps():
        yield step.end_ns, step.end_ns - step.start_ns, step.value, step.value, step.value


def _steps(source: Source) -> Iterator[Row]:
    for one in take_step_counts(source.reader, source.phases):
        process = source.reader.processes[one.process]
        yield Row(one.at_ns, process.rank, (source.run, process.pid, one.at_ns, one.duration_ns, one.steps))


def _findings(source: Source) -> Iterator[Row]:
    for finding in findings_in(source.reader, MAIN_THREADS, source.phases):
        line, evidence = finding.evidence.line, finding.evidence
        place = (None, None, None) if line is None else (line.function, line.file, line.line)
        values = (
            source.run,
            finding.rule,
            finding.severity,
            finding.label,
            finding.title,
            *place,
            finding.gain_bound,
            evidence.from_ns,
            evidence.to_ns,
            *_lost(source, finding),
        )
        yield Row(source.reader.info.started_ns, None, values)


def _lost(source: Source, finding: Finding) -> tuple[int, int]:
    """Return the time of ranks, and of their GPUs, that a fix can give back at most; 0 where nothing tells."""
    gain = finding.gain_bound or 1.0
    share = 1 - 1 / gain if gain > 1 else 0.0
    from_ns, to_ns = finding.evidence.from_ns, finding.evidence.to_ns
    lived = [(source.lived_ns(row, from_ns, to_ns), source.gpus(row)) for row in source.trainers]
    return round(share * sum(ns for ns, _ in lived)), round(share * sum(ns * gpus for ns, gpus in lived))


def _runs(source: Source) -> Iterator[Row]:
    """Yield the run once for each training process."""
    info, placements = source.reader.info, source.reader.placements()
    model = next((device.model for device in source.reader.devices()), None)
    for process in source.trainers:
        place = placements.get(process.id)
        gpus = source.gpus(process)
        values = (
            source.run,
            process.pid,
            info.id,
            info.name,
            info.host,
            " ".join(info.command),
            info.versions.get("profd"),
            info.state,
            info.started_ns,
            info.end_ns,
            source.lived_ns(process, info.started_ns, info.end_ns),
            gpus,
            model if gpus else None,
            place.local_rank if place else None,
            place.world_size if place else None,
        )
        yield Row(info.started_ns, process.rank, values)


ROWS: Mapping[str, Callable[[Source], Iterator[Row]]] = {
    "samples": _samples,
    "stacks": _stacks,
    "series": _series,
    "steps": _steps,
    "findings": _findings,
    "runs": _runs,
}
"""By table what yields its rows; ``stacks`` after ``samples``."""
