"""Metrics of one run as a whole, and of its parts.

They cover findings, GPUs, memory, processes, steps, phases, and the run's sampling. A function
yields samples of one look. A class also keeps what it needs of those before.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence

from profd.daemon.analyze.coverage import COST_SERIES, covered_share
from profd.daemon.analyze.phases import PHASES, PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.analyze.steps import lost_ranges
from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.events import STEP_CHANGES
from profd.daemon.findings.finding import SEVERITIES
from profd.daemon.metrics import catalog
from profd.daemon.metrics.catalog import Metric, Sample
from profd.daemon.metrics.look import RunLook, rank_of
from profd.daemon.store.findings import rules_found
from profd.daemon.store.records import STEP_COUNT
from profd.daemon.store.rollups import ALL_TOGETHER, minute_times, span_totals
from profd.daemon.store.rows import PointRow, ProcessRow, RecordedTotal, SeriesRow
from profd.daemon.store.stepfunction import MEMORY_OF_PROCESS, UTILIZATION, IntervalSet
from profd.daemon.timerange import TimeRange

GPU_USED, GPU_TOTAL = "gpu_memory_used_bytes", "gpu_memory_total_bytes"
HOST_USED, HOST_TOTAL = "host_memory_used_bytes", "host_memory_total_bytes"
CGROUP_USED, CGROUP_LIMIT = "cgroup_memory_working_set_bytes", "cgroup_memory_limit_bytes"
RSS, OWN_RSS = "rss_bytes", "profd_rss_bytes"
SERIES = (
    STEP_COUNT,
    UTILIZATION,
    MEMORY_OF_PROCESS,
    GPU_USED,
    GPU_TOTAL,
    RSS,
    HOST_USED,
    HOST_TOTAL,
    CGROUP_USED,
    CGROUP_LIMIT,
    COST_SERIES,
    OWN_RSS,
)
"""The names of all series that are read."""


def state(look: RunLook) -> Iterator[Sample]:
    info, hangs = look.reader.info, look.reader.hangs()
    yield look.sample(catalog.RUN_INFO, 1, info.name, info.mode, info.host)
    yield look.sample(catalog.RUN_STARTED, info.started_ns / SECOND_NS)
    yield look.sample(catalog.RUN_WRITTEN, info.end_ns / SECOND_NS)
    yield look.sample(catalog.HANGS, len(hangs))
    lasting = [hang for hang in hangs if hang.ended_ns is None]
    yield look.sample(catalog.HANGING, bool(lasting))
    for rank in {
        one.rank for hang in lasting for one in hang.report.behind if one.rank is not None
    }:
        yield look.sample(catalog.RANK_BEHIND, 1, str(rank))


def findings(look: RunLook) -> Iterator[Sample]:
    """Yield which rules found something; one that did once has a series from then on."""
    found, looked_ns = rules_found(look.reader), look.reader.info.analyzed_ns
    for severity in SEVERITIES:
        yield look.sample(
            catalog.FINDINGS, sum(one.holds for one in found if one.severity == severity), severity
        )
    for one in found:
        yield look.sample(catalog.FINDING, one.holds, one.rule, one.severity)
    yield look.sample(catalog.FINDINGS_LOOKED, None if looked_ns is None else looked_ns / SECOND_NS)


def gpus(look: RunLook) -> Iterator[Sample]:
    """Yield the use of each GPU; a device that was read stays."""
    for series in look.of_name(UTILIZATION):
        if series.process is None and series.device is not None:
            busy, gpu = look.integral(series), series.device.removeprefix("gpu")
            yield look.sample(catalog.GPU_UTILIZATION, busy.mean(look.reader.info.end_ns), gpu)
            yield look.sample(catalog.GPU_BUSY_SECONDS, busy.total_s, gpu)
            yield look.sample(catalog.GPU_MEMORY_USED, look.value(GPU_USED, series.device), gpu)
            yield look.sample(catalog.GPU_MEMORY_TOTAL, look.value(GPU_TOTAL, series.device), gpu)


def shared_memory(look: RunLook) -> Iterator[Sample]:
    """Yield the memory that the run shares with others, as far as the kernel tells it."""
    if (used := look.value(HOST_USED)) is not None:
        yield look.sample(catalog.HOST_MEMORY_USED, used)
    if (total := look.value(HOST_TOTAL)) is not None:
        yield look.sample(catalog.HOST_MEMORY_TOTAL, total)
    groups: list[tuple[float, float, float]] = []
    for series in look.of_name(CGROUP_LIMIT):
        limit, used = look.newest.get(series.id), look.value(CGROUP_USED, series.device)
        if limit is not None and used is not None:
            groups.append((limit - used, used, limit))
    if groups:
        _, used, limit = min(groups)
        yield look.sample(catalog.CGROUP_MEMORY_USED, used)
        yield look.sample(catalog.CGROUP_MEMORY_LIMIT, limit)


def own_cost(look: RunLook) -> Iterator[Sample]:
    yield look.sample(
        catalog.SELF_CPU, sum(look.integral(series).total_s for series in look.of_name(COST_SERIES))
    )
    yield look.sample(catalog.SELF_MEMORY, look.value(OWN_RSS) or 0.0)


def processes(look: RunLook) -> Iterator[Sample]:
    """Yield how many processes live, and their memory by rank and role."""
    every = look.reader.processes.values()
    living = {process.id: process for process in every if process.ended_ns is None}
    roles = Counter(process.role for process in living.values())
    for role in ("main", "worker", "helper", "launcher"):
        yield look.sample(catalog.PROCESSES, roles[role], role)
    memories = (catalog.PROCESS_MEMORY, RSS), (catalog.PROCESS_GPU_MEMORY, MEMORY_OF_PROCESS)
    for metric, name in memories:
        yield from _memory_by_group(look, living, metric, name)


def _memory_by_group(
    look: RunLook, living: dict[int, ProcessRow], metric: Metric, name: str
) -> Iterator[Sample]:
    """Yield the sums of the newest values of a series of processes, by rank and role."""
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for series in look.of_name(name):
        process, value = living.get(series.process or 0), look.newest.get(series.id)
        if process is not None and value is not None:
            sums[rank_of(process), process.role] += value
    for group in sorted(sums):
        yield look.sample(metric, sums[group], *group)


class StepCounts:
    """The newest counts of each rank, which keeps its number when its process ends."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[SeriesRow, deque[PointRow]]] = {}

    def take(self, look: RunLook) -> Iterator[Sample]:
        ranks = {process.id: rank_of(process) for process in look.trainers()}
        for series in look.of_name(STEP_COUNT):
            if series.process in ranks and series.id in look.newest:
                self._catch_up(look, ranks[series.process], series)
        events = look.reader.events(*STEP_CHANGES) if self._counts else []
        for rank, (series, counts) in self._counts.items():
            lost = lost_ranges(events, series.process or 0)
            per_s = _rate(counts, lost[-1].time.to_ns if lost else 0, look.reader.info.end_ns)
            is_counted = all(one.is_counted for one in lost)
            yield look.sample(catalog.STEPS, counts[-1].value if is_counted else None, rank)
            yield look.sample(catalog.STEP_RATE, per_s, rank)

    def _catch_up(self, look: RunLook, rank: str, series: SeriesRow) -> None:
        known, counts = self._counts.get(rank, (series, deque[PointRow](maxlen=9)))
        # The younger process is the one that the rank is now.
        if series.id > known.id:
            counts = deque(maxlen=9)
        elif series.id < known.id:
            return
        unread = TimeRange(counts[-1].at_ns + 1 if counts else look.began_ns)
        counts.extend(look.reader.points(series.id, unread))
        if counts:
            self._counts[rank] = series, counts


def _rate(counts: Sequence[PointRow], since_ns: int, now_ns: int) -> float | None:
    """Return the steps a second by the counts since a time, if they are known.

    Counts are seconds apart: after a minute without one the rate is unknown.
    """
    last = counts[-1]
    first = next((one for one in counts if one.at_ns >= since_ns), last)
    if first.at_ns >= last.at_ns or now_ns - last.at_ns > 60 * SECOND_NS:
        return None
    return last.per_s_since(first)


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

    def samples(self, look: RunLook, metric: Metric) -> Iterator[Sample]:
        for labels, time_ns in self._spent_ns.items():
            yield look.sample(metric, time_ns / SECOND_NS, *labels)


class PhaseSeconds:
    """Time by phase, by the intervals since the last look, each counted once."""

    def __init__(self, phases: PhaseIndex) -> None:
        self._read_to_ns: dict[int, int] = {}
        self._seconds = _Seconds(phases)

    def take(self, look: RunLook) -> Iterator[Sample]:
        self._seconds.know(rank_of(process) for process in look.trainers())
        for row in span_totals(look.reader, self._spans(look)):
            process = look.reader.processes[look.reader.threads[row.thread].process]
            self._seconds.add(rank_of(process), row.stack, row.duration_ns)
        return self._seconds.samples(look, catalog.PHASE_SECONDS)

    def _spans(self, look: RunLook) -> list[tuple[int, TimeRange]]:
        """Return the time of each training main thread that was recorded, and not counted yet."""
        to_ns: dict[int, int] = {}
        for recording in look.recordings:
            to_ns[recording.process] = max(to_ns.get(recording.process, 0), recording.end_ns)
        spans = []
        for thread in look.reader.main_threads():
            from_ns = self._read_to_ns.get(thread.id, look.began_ns)
            end_ns = to_ns.get(thread.process, from_ns)
            if end_ns > from_ns:
                spans.append((thread.id, TimeRange(from_ns, end_ns)))
                self._read_to_ns[thread.id] = end_ns
        for gone in self._read_to_ns.keys() - look.reader.threads.keys():
            del self._read_to_ns[gone]
        return spans


_IDLE = "CAST(known_ns - busy_ns AS INTEGER)"


class IdleSeconds:
    """Time by phase while GPUs were idle.

    The recorder's sums by the minute say it, some 20 s after it happened.
    """

    def __init__(self, phases: PhaseIndex) -> None:
        self._counted: dict[tuple[int, int, int], int] = {}
        self._open_ns: int | None = None
        self._seconds = _Seconds(phases)

    def take(self, look: RunLook) -> Iterator[Sample]:
        """Count what was added to the sums; a run without a GPU has no such time."""
        if next(look.of_name(UTILIZATION), None) is None:
            return iter(())
        trainers = {process.id: rank_of(process) for process in look.trainers()}
        self._seconds.know(trainers.values())
        threads = look.reader.threads.values()
        ranks = {
            thread.id: trainers[thread.process] for thread in threads if thread.process in trainers
        }
        for row in minute_times(
            look.reader, ranks, range(self._first_open(look), ALL_TOGETHER), _IDLE
        ):
            key = row.thread, row.column, row.stack
            before_ns, self._counted[key] = self._counted.get(key, 0), row.time_ns
            # A sum that is less than it was is one that the recorder began anew: all of it counts.
            added_ns = row.time_ns - before_ns if row.time_ns >= before_ns else row.time_ns
            self._seconds.add(ranks[row.thread], row.stack, added_ns)
        return self._seconds.samples(look, catalog.GPU_IDLE_SECONDS)

    def _first_open(self, look: RunLook) -> int:
        """Return the first minute that was not over at the last look.

        What was counted before that minute is forgotten.
        """
        open_ns = look.began_ns if self._open_ns is None else self._open_ns
        # Then the recorder's sums of a time are complete: its recordings are seconds, its delay is
        # 20 s.
        self._open_ns = max(look.reader.info.end_ns - 2 * MINUTE_NS, open_ns)
        first = (open_ns - look.reader.info.started_ns) // MINUTE_NS
        self._counted = {key: time_ns for key, time_ns in self._counted.items() if key[1] >= first}
        return first


class Quality:
    """What was sampled of the training processes that live, and how many stacks were torn."""

    def __init__(self) -> None:
        self._samples = self._torn = 0
        self._covers: defaultdict[int, IntervalSet] = defaultdict(IntervalSet)

    def take(self, look: RunLook) -> Iterator[Sample]:
        trainers = {process.id for process in look.trainers()}
        for ended in self._covers.keys() - trainers:
            del self._covers[ended]
        for row in look.recordings:
            self._samples += row.samples
            self._torn += row.torn
            if row.process in trainers and row.samples > row.torn:
                self._covers[row.process].add(row.start_ns, row.end_ns)
        share = covered_share(look.reader, self._covers, Selection(from_ns=look.began_ns))
        yield look.sample(catalog.COVERAGE, share)
        yield look.sample(catalog.SAMPLES, self._samples)
        yield look.sample(catalog.TORN_SAMPLES, self._torn)
        yield look.sample(catalog.TORN, RecordedTotal(self._samples, self._torn).torn_share or 0.0)
