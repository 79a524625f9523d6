"""Where the time of the training main threads goes, by phase, and what of it while their GPUs were idle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from profd.daemon.analyze.phases import PHASES, PhaseIndex
from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics.catalog import GPU_IDLE_SECONDS, PHASE_SECONDS, Metric, Sample
from profd.daemon.metrics.look import Look, rank_of
from profd.daemon.store.rollups import ALL_TOGETHER, Span, minute_times, span_totals
from profd.daemon.store.stepfunction import MINUTE_NS, UTILIZATION

_SUMMED_WITHIN_NS = 2 * MINUTE_NS
"""After so long the recorder's sums of a time are complete: its recordings are seconds, its delay is 20 s."""


class _Seconds:
    """Time by rank and phase; a rank that was seen has all phases from then on."""

    def __init__(self, phases: PhaseIndex) -> None:
        self._phases = phases
        self._spent_ns: dict[tuple[str, str], int] = {}

    def know(self, ranks: Iterable[str]) -> None:
        for rank in ranks:
            for phase in PHASES:
                self._spent_ns.setdefault((rank, phase.name), 0)

    def add(self, rank: str, stack: int, time_ns: int) -> None:
        self._spent_ns[rank, self._phases.of_stack(stack)] += time_ns

    def samples(self, look: Look, metric: Metric) -> Iterator[Sample]:
        for labels, time_ns in self._spent_ns.items():
            yield look.sample(metric, time_ns / SECOND_NS, *labels)


class PhaseSeconds:
    """Time by phase: what the intervals say that came since the look before, each once."""

    def __init__(self, phases: PhaseIndex) -> None:
        self._read_to_ns: dict[int, int] = {}
        self._seconds = _Seconds(phases)

    def take(self, look: Look) -> Iterator[Sample]:
        self._seconds.know(rank_of(process) for process in look.trainers())
        for row in span_totals(look.reader, self._spans(look)):
            process = look.reader.processes[look.reader.threads[row.thread].process]
            self._seconds.add(rank_of(process), row.stack, row.duration_ns)
        return self._seconds.samples(look, PHASE_SECONDS)

    def _spans(self, look: Look) -> list[Span]:
        """Return what of each training main thread was recorded, and not counted yet."""
        to_ns: dict[int, int] = {}
        for recording in look.recordings:
            to_ns[recording.process] = max(to_ns.get(recording.process, 0), recording.end_ns)
        spans = [
            Span(thread.id, self._read_to_ns.get(thread.id, look.began_ns), to_ns[thread.process])
            for thread in look.reader.main_threads()
            if thread.process in to_ns
        ]
        spans = [span for span in spans if span.from_ns < span.to_ns]
        counted = self._read_to_ns | {span.thread: span.to_ns for span in spans}
        self._read_to_ns = {thread: at_ns for thread, at_ns in counted.items() if thread in look.reader.threads}
        return spans


class IdleSeconds:
    """Time by phase while GPUs were idle: what the recorder's sums by the minute say, some 20 s after it happened."""

    def __init__(self, phases: PhaseIndex) -> None:
        self._counted: dict[tuple[int, int, int], int] = {}
        self._open_ns: int | None = None
        self._seconds = _Seconds(phases)

    def take(self, look: Look) -> Iterator[Sample]:
        """Count what was added to the sums; a run without a GPU has no such time."""
        if next(look.of_name(UTILIZATION), None) is None:
            return iter(())
        trainers = {process.id: rank_of(process) for process in look.trainers()}
        self._seconds.know(trainers.values())
        threads = look.reader.threads.values()
        ranks = {thread.id: trainers[thread.process] for thread in threads if thread.process in trainers}
        for row in minute_times(look.reader, ranks, range(self._first_open(look), ALL_TOGETHER), "idle_ns"):
            key = row.thread, row.column, row.stack
            before_ns, self._counted[key] = self._counted.get(key, 0), row.time_ns
            # A sum that is less than it was is one that the recorder began anew: all of it counts.
            added_ns = row.time_ns - before_ns if row.time_ns >= before_ns else row.time_ns
            self._seconds.add(ranks[row.thread], row.stack, added_ns)
        return self._seconds.samples(look, GPU_IDLE_SECONDS)

    def _first_open(self, look: Look) -> int:
        """Return the first minute that was not over at the last look, and forget what was counted before it."""
        open_ns = look.began_ns if self._open_ns is None else self._open_ns
        self._open_ns = max(look.reader.info.end_ns - _SUMMED_WITHIN_NS, open_ns)
        first = (open_ns - look.reader.info.started_ns) // MINUTE_NS
        self._counted = {key: time_ns for key, time_ns in self._counted.items() if key[1] >= first}
        return first
