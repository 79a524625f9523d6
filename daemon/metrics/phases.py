"""Where the time of the training main threads goes, by phase, and what of it while their GPUs were idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from profd.daemon.analyze.phases import PHASES, PhaseIndex, StackTables
from profd.daemon.clock import SECOND_NS
from profd.daemon.metrics.catalog import GPU_IDLE_SECONDS, PHASE_SECONDS, Sample
from profd.daemon.metrics.look import Look, rank_of
from profd.daemon.store.rollups import ALL_TOGETHER, Span, minute_times, span_totals
from profd.daemon.store.rows import ColumnTime
from profd.daemon.store.stepfunction import MINUTE_NS, UTILIZATION

NAMES = tuple(phase.name for phase in PHASES)
_SUMMED_WITHIN_NS = 2 * MINUTE_NS
"""After so long the recorder's sums of a time are complete: its recordings are seconds, its delay is 20 s."""


class _Seconds:
    """Time by rank and phase; a rank that was seen has all phases from then on."""

    def __init__(self) -> None:
        self._spent_ns: dict[str, dict[str, int]] = {}

    def know(self, rank: str) -> None:
        """Have a rank, with no time as yet."""
        self._spent_ns.setdefault(rank, dict.fromkeys(NAMES, 0))

    def add(self, rank: str, phase: str, time_ns: int) -> None:
        """Count some time."""
        self._spent_ns[rank][phase] += time_ns

    def items(self) -> Iterator[tuple[str, str, float]]:
        """Yield (rank, phase, seconds)."""
        for rank, spent_ns in self._spent_ns.items():
            for phase, time_ns in spent_ns.items():
                yield rank, phase, time_ns / SECOND_NS


class PhaseSeconds:
    """Time by phase: what the intervals say that came since the look before, each once."""

    def __init__(self, phases: PhaseIndex) -> None:
        self._phases = phases
        self._read_to_ns: dict[int, int] = {}
        self._seconds = _Seconds()

    def take(self, look: Look) -> Iterator[Sample]:
        """Take in the new recordings."""
        for member in look.trainers():
            self._seconds.know(rank_of(member))
        for row in span_totals(look.reader, self._spans(look)):
            member = look.reader.processes[look.reader.threads[row.thread].process]
            self._seconds.add(rank_of(member), self._phases.of_stack(row.stack), row.duration_ns)
        for rank, phase, seconds in self._seconds.items():
            yield Sample(PHASE_SECONDS, (look.run, rank, phase), seconds)

    def _spans(self, look: Look) -> list[Span]:
        """Return what of each training main thread was recorded, and not counted yet."""
        to_ns: defaultdict[int, int] = defaultdict(int)
        for recording in look.recordings:
            to_ns[recording.process] = max(to_ns[recording.process], recording.end_ns)
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
        self._phases = phases
        self._counted: dict[tuple[int, int, int], int] = {}
        self._open_ns: int | None = None
        self._seconds = _Seconds()

    def take(self, look: Look) -> Iterator[Sample]:
        """Count what was added to the sums; without a GPU there is nothing to tell."""
        if next(look.of_name(UTILIZATION), None) is None:
            return
        threads = {row.id: row.process for row in look.reader.threads.values()}
        trainers = {member.id: rank_of(member) for member in look.trainers()}
        for rank in trainers.values():
            self._seconds.know(rank)
        ranks = {thread: trainers[process] for thread, process in threads.items() if process in trainers}
        for row in minute_times(look.reader, ranks, range(self._first_open(look), ALL_TOGETHER), "idle_ns"):
            self._seconds.add(ranks[row.thread], self._phases.of_stack(row.stack), self._added_ns(row))
        for rank, phase, seconds in self._seconds.items():
            yield Sample(GPU_IDLE_SECONDS, (look.run, rank, phase), seconds)

    def _first_open(self, look: Look) -> int:
        """Return the first minute that was not over at the last look, and forget what was counted before it."""
        open_ns = look.began_ns if self._open_ns is None else self._open_ns
        self._open_ns = max(look.reader.info.end_ns - _SUMMED_WITHIN_NS, open_ns)
        first = (open_ns - look.reader.info.started_ns) // MINUTE_NS
        self._counted = {key: time_ns for key, time_ns in self._counted.items() if key[1] >= first}
        return first

    def _added_ns(self, row: ColumnTime) -> int:
        """Return what a sum has more than it had; all of it where the recorder began it anew."""
        key = row.thread, row.column, row.stack
        before_ns, self._counted[key] = self._counted.get(key, 0), row.time_ns
        return row.time_ns - before_ns if row.time_ns >= before_ns else row.time_ns


def phase_parts(known: StackTables) -> tuple[PhaseSeconds, IdleSeconds]:
    """Return both, with one index of the run's phases."""
    phases = PhaseIndex(known)
    return PhaseSeconds(phases), IdleSeconds(phases)
