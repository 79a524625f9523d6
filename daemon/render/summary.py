"""The summary of a run: what ``profd summary`` prints and ``--json`` writes, as one struct.

Its fields are a promise to whoever reads the JSON: they may be added to, and ``version`` rises when
one changes its meaning.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import msgspec

from profd.daemon.analyze.coverage import GapTotal, take_coverage, take_gaps
from profd.daemon.analyze.gpu import Gpu, GpuIdle, take_gpu_idle, take_gpus
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.incidents import Hang, PostMortem, take_hangs, take_post_mortem
from profd.daemon.analyze.job import RankSummary, take_ranks
from profd.daemon.analyze.memory import Growth, growth
from profd.daemon.analyze.operators import WindowSummary, last_window
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import (
    FunctionRow,
    PhaseLine,
    Profile,
    hot_functions,
    phase_lines,
    phase_shares,
    selected_totals,
    take_profile,
    utilization_by_stack,
    weighted,
)
from profd.daemon.analyze.selection import MAIN_THREADS, Selection, leading_threads
from profd.daemon.analyze.series import total_of_series
from profd.daemon.analyze.steps import Steps, take_steps
from profd.daemon.analyze.steptree import StepPart, take_step_tree
from profd.daemon.analyze.uncertainty import take_transitions
from profd.daemon.events import EventKind
from profd.daemon.findings.catalog import findings_in
from profd.daemon.findings.finding import INFO, Finding
from profd.daemon.findings.kinds import named_rest
from profd.daemon.naming import ending, signal_name
from profd.daemon.store.merge import JoinedNode, nodes_of
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow, StackTotal
from profd.daemon.timerange import EVER
from profd.daemon.units import duration

VERSION = 1


class Exit(msgspec.Struct, frozen=True):
    """How a process ended: exit code or name of its signal; both None if unknown or running."""

    code: int | None
    signal: str | None


class Target(msgspec.Struct, frozen=True):
    """The process that was launched or attached to."""

    command: tuple[str, ...]
    pid: int
    exit: Exit


class ProcessSummary(msgspec.Struct, frozen=True):
    """A process of the tree.

    ``samples`` and ``functions`` are those of its main thread; ``cpu_cores`` is a mean,
    ``rss_bytes`` the last value in the selection's range of time.
    """

    pid: int
    role: str
    rank: int | None
    ordinal: int | None
    command: tuple[str, ...]
    exit: Exit
    samples: int
    cpu_cores: float | None
    rss_bytes: int | None
    functions: tuple[FunctionRow, ...]


class Summary(msgspec.Struct, frozen=True):
    """A run, or a selection of it.

    ``state`` is live, ended or interrupted; ``why_ended`` is target-exited, stopped, duration or
    failed. ``samples`` are those of the selection, ``phases`` and ``functions`` their shares, 0 to
    1, the largest first; ``rest`` has the parts of *other* and *waiting*. ``Coverage`` explains
    ``coverage``, ``torn_share`` and ``cost_core_share``. ``gpu_idle`` is None if no GPU was read.
    ``nodes`` are those of a job whose run files were merged. ``losses`` are the first events of
    data that was dropped on the way to the run file, ``gaps`` the time in which training processes
    were not read, by reason, the longest first, ``unread`` the events of processes that were not
    read for some time, with the reason. ``no_samples`` says why ``samples`` is 0. ``incident`` is
    the warning in one line: the target's death, a whole run without samples, hangs, and findings
    above info; empty if there is none. ``leading_threads`` are the threads, by name, that are shown
    in place of a main thread that only waits for them. ``step`` is where an average step goes, None
    if its time is unknown.
    """

    version: int
    run: str
    name: str
    state: str
    why_ended: str | None
    target: Target
    duration_s: float
    samples: int
    coverage: float | None
    torn_share: float | None
    cost_core_share: float | None
    steps: Steps
    phases: dict[str, float]
    phase_errors: dict[str, float]
    phase_lines: tuple[PhaseLine, ...]
    functions: tuple[FunctionRow, ...]
    processes: tuple[ProcessSummary, ...]
    gpus: tuple[Gpu, ...]
    rest: dict[str, dict[str, float]]
    gpu_idle: GpuIdle | None
    memory: tuple[Growth, ...]
    hangs: tuple[Hang, ...]
    post_mortem: PostMortem | None
    findings: tuple[Finding, ...]
    ranks: tuple[RankSummary, ...]
    last_window: tuple[WindowSummary, ...]
    nodes: tuple[JoinedNode, ...]
    losses: tuple[str, ...]
    gaps: tuple[GapTotal, ...]
    incident: str
    unread: tuple[str, ...]
    no_samples: str
    leading_threads: tuple[str, ...]
    step: StepPart | None

    @property
    def ending(self) -> str:
        """How the run ended."""
        end = self.target.exit
        return ending(self.state, self.why_ended, end.code, end.signal)


def summarize(reader: RunReader, selection: Selection = MAIN_THREADS) -> Summary:
    """Summarize a run over a selection of its samples.

    Processes are listed with what they did in the selection's range of time and while its
    conditions held, for any threads that it names.
    """
    phases = PhaseIndex(reader)
    profile = take_profile(reader, selection, phases)
    shares = phase_shares(profile, phases)
    coverage = take_coverage(reader, selection)
    is_empty = not profile.total_samples and selection.time == EVER
    covered = 0.0 if is_empty and coverage.share else coverage.share
    busy = utilization_by_stack(reader, GpuTracks(reader), selection, phases)
    info = reader.info
    hangs, post_mortem = take_hangs(reader, selection), take_post_mortem(reader)
    findings = findings_in(reader, selection, phases)
    no_samples = "" if profile.total_samples else why_no_samples(reader)
    incidents = [post_mortem.cause] if post_mortem else []
    incidents += [no_samples] if reader.is_over_without_samples else []
    incidents += [hang.text for hang in hangs]
    incidents += [finding.title for finding in findings if finding.severity != INFO]
    steps = take_steps(reader, selection, phases)
    errors = profile.errors(shares, lambda stack: frozenset({phases.of_stack(stack)}))
    return Summary(
        VERSION,
        info.id,
        info.name,
        info.state,
        info.why_ended,
        Target(info.command, info.target.pid, Exit(info.exit_code, signal_name(info.exit_signal))),
        selection.time_in(reader).length_s,
        profile.total_samples,
        covered,
        coverage.torn_share,
        coverage.cost_core_share,
        steps,
        shares,
        errors,
        phase_lines(profile, phases),
        tuple(hot_functions(reader, profile, busy)[:20]),
        _processes(reader, selection),
        gpus=take_gpus(reader, selection),
        rest=named_rest(reader, profile, phases),
        gpu_idle=take_gpu_idle(reader, selection, phases),
        memory=growth(reader, selection),
        hangs=hangs,
        post_mortem=post_mortem,
        findings=findings,
        ranks=take_ranks(reader, selection, phases),
        last_window=last_window(reader, selection),
        nodes=nodes_of(reader),
        losses=_texts(reader, selection, EventKind.LOSS),
        gaps=take_gaps(reader, selection),
        incident="; ".join(incidents),
        unread=_texts(reader, selection, EventKind.UNREAD),
        no_samples=no_samples,
        leading_threads=leading_threads(reader, selection) if selection.main_threads else (),
        step=take_step_tree(reader, selection, phases, steps),
    )


def _texts(reader: RunReader, selection: Selection, kind: EventKind) -> tuple[str, ...]:
    """Return the first events of a kind."""
    texts = (event.text for event in reader.events(kind) if selection.time.holds(event.at_ns))
    return tuple(itertools.islice(texts, 5))


def why_no_samples(reader: RunReader) -> str:
    """Return why a selection without samples has none."""
    read, info, unread = reader.recorded(), reader.info, reader.events(EventKind.UNREAD)
    if read.whole:
        return "no samples are in this selection of the run"
    if read.samples:
        return f"no samples were taken: all {read.samples:,} stacks that were read were torn"
    if unread:
        return f"no samples were taken: {unread[0].text}"
    if info.is_live:
        return "no samples were taken yet"
    length = duration(info.time.length_s)
    if not any(row.python for row in reader.processes.values()):
        return (
            f"no samples were taken: no process of it ran Python, as far as profd saw in {length}"
        )
    return f"no samples were taken: the recording took {length}, and py-spy gave no stack in it"


def _processes(reader: RunReader, selection: Selection) -> tuple[ProcessSummary, ...]:
    """Return the processes of a selection: by rank, each worker after its parent.

    Processes without any data come last: those of a compiler live for moments, and are many.
    """
    profiles = _profiles_of_processes(reader, selection)

    def order(row: ProcessRow) -> tuple[int, bool, int, int]:
        is_worker = row.role == "worker"
        family = row.parent if is_worker and row.parent in reader.processes else row.id
        return (family or 0, is_worker, row.ordinal or 0, row.id)

    def described(row: ProcessRow) -> ProcessSummary:
        rss = reader.find_series("rss_bytes", row.id)
        last = reader.last_point(rss.id, selection.time.to_ns) if rss else None
        profile = profiles[row.id]
        return ProcessSummary(
            row.pid,
            row.role,
            row.rank,
            row.ordinal,
            row.command,
            Exit(row.exit_code, signal_name(row.exit_signal)),
            profile.total_samples,
            total_of_series(reader, "cpu_cores", row.id, selection).mean,
            int(last.value) if last else None,
            tuple(hot_functions(reader, profile)[:5]),
        )

    rows = sorted(filter(selection.takes_process, reader.processes.values()), key=order)
    found = map(described, rows)
    return tuple(
        sorted(
            found, key=lambda one: one.role != "main" and one.cpu_cores is None and not one.samples
        )
    )


def _profiles_of_processes(reader: RunReader, selection: Selection) -> dict[int, Profile]:
    """Return the profile of each main thread."""
    totals: defaultdict[int, list[StackTotal]] = defaultdict(list)
    alone = Selection(when=selection.when).during(selection.time)
    mains = {thread.id: thread.process for thread in reader.threads.values() if thread.is_main}
    for total in selected_totals(reader, alone):
        if total.thread in mains:
            totals[mains[total.thread]].append(total)
    changes = take_transitions(reader, alone, frozenset(mains))
    # One process at a time: its weight would change none of its shares.
    alike = dict.fromkeys(reader.processes, 1.0)
    return {
        process: weighted(
            reader,
            totals[process],
            {process: changes[process]} if process in changes else {},
            alike,
        )
        for process in reader.processes
    }
