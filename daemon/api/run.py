"""A run as values: what its file tells, as the commands show it.

``profd`` offers the names of this module as its own.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import os
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from profd.daemon import paths
from profd.daemon.analyze.coverage import take_lives
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.incidents import Hang, take_hangs
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import (
    FunctionRow,
    PhaseLine,
    hot_functions,
    lines_by_stack,
    process_weights,
    selected_totals,
    take_profile,
    utilization_by_stack,
)
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.analyze.steps import Steps
from profd.daemon.api.opening import ListedRun as ListedRun
from profd.daemon.api.opening import list_runs as list_runs
from profd.daemon.api.opening import opened
from profd.daemon.api.rows import Rows
from profd.daemon.api.selectors import Selectors, select
from profd.daemon.clock import SECOND_NS
from profd.daemon.compare.diff import ALIKE, Diff, take_compared, take_diff
from profd.daemon.compare.readings import LEAST
from profd.daemon.errors import ProfdError as ProfdError
from profd.daemon.exports.svg import flame_graph_svg
from profd.daemon.exports.tables import series_rows
from profd.daemon.findings.catalog import answered, findings_in, present_findings
from profd.daemon.findings.finding import Finding
from profd.daemon.render.summary import ProcessSummary, Summary, summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo
from profd.daemon.units import duration

if TYPE_CHECKING:
    from typing_extensions import Unpack

_KEPT = 8
"""So many summaries are kept: properties of a run ask for the same one."""


class PhaseShare(msgspec.Struct, frozen=True):
    """A phase with its share of the time, 0 to 1, and the standard error of that.

    ``line`` is the user's line that takes most of it, if any does.
    """

    name: str
    share: float
    error: float
    line: PhaseLine | None


class StackTime(msgspec.Struct, frozen=True):
    """A stack of a thread, and the time that the thread stood in it.

    ``frames`` are ``name (path:line)`` from the root to the leaf; ``function``, ``file`` and
    ``line`` are the leaf's. ``samples`` are the evidence. ``seconds`` stand for all of the life of
    the process: where it was read for half of the time, a sampled second counts twice.
    """

    pid: int
    role: str
    rank: int | None
    thread: str
    os_tid: int
    phase: str
    samples: int
    seconds: float
    function: str
    file: str
    line: int
    frames: tuple[str, ...]


class MetricPoint(msgspec.Struct, frozen=True):
    """One value of a series, whose name includes the unit.

    ``at_ns`` is the time of day in nanoseconds since 1970. ``pid`` and ``rank`` are None for a
    series of a device or of the host.
    """

    at_ns: int
    name: str
    pid: int | None
    rank: int | None
    os_tid: int | None
    device: str | None
    value: float


class Live(msgspec.Struct, frozen=True):
    """A run in progress: what slows it now, and the hangs that have not ended.

    The findings rest on the last 45 s, and are renewed by the recorder. ``length_s`` is how far the
    run is known.
    """

    length_s: float
    findings: tuple[Finding, ...]
    hangs: tuple[Hang, ...]


class Run:
    """A run, open for reading; use it in a ``with``, or close it.

    Each answer on a run in progress is as of the moment of asking. What takes selectors raises
    UsageError if the run lacks what they name; everything raises RunUnreadable if the file is
    damaged. A run belongs to one thread at a time.
    """

    def __init__(
        self,
        reader: RunReader,
        notes: Sequence[str] = (),
        files: contextlib.ExitStack | None = None,
    ) -> None:
        self.reader = reader
        self.notes = notes
        """What is not as the name suggests: newer runs that cannot be read, files left out."""
        self._files = files or contextlib.ExitStack()
        self._summarized = functools.lru_cache(_KEPT)(
            lambda _, selection: answered(summarize, reader, selection)
        )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._files.close()

    @property
    def path(self) -> Path:
        """The run file; of a job of several nodes a joined one that goes with the run."""
        return self.reader.path

    @property
    def info(self) -> RunInfo:
        """The run as a whole: id, command, host, state, beginning and end."""
        if self.reader.info.is_live:
            self.reader.refresh()
        return self.reader.info

    @property
    def live(self) -> Live | None:
        """What there is of a run in progress alone; None if the run is over."""
        if not self.info.is_live:
            return None
        hangs = tuple(hang for hang in self.hangs() if hang.ended_s is None)
        return Live(self.reader.info.time.length_s, present_findings(self.reader), hangs)

    def summary(self, **words: Unpack[Selectors]) -> Summary:
        """Return where the time went, as ``profd summary --json`` has it."""
        with self.reader.one_moment():
            return self._summarized(self.reader.version(), select(self.reader, words))

    @property
    def findings(self) -> Rows[Finding]:
        """What slows the run, the most important first, each with its evidence."""
        return self.findings_in()

    def findings_in(self, **words: Unpack[Selectors]) -> Rows[Finding]:
        """Return what slows a range of the run, over the processes that the words select."""
        with self.reader.one_moment():
            selection = select(self.reader, words)
            return Rows(Finding, findings_in(self.reader, selection, PhaseIndex(self.reader)))

    def hangs(self, **words: Unpack[Selectors]) -> Rows[Hang]:
        """Return when the run stood still, with the stacks of that time."""
        with self.reader.one_moment():
            return Rows(Hang, take_hangs(self.reader, select(self.reader, words)))

    @property
    def phases(self) -> Rows[PhaseShare]:
        """The phases of the main threads, the largest first."""
        taken = self.summary()
        lines = {line.phase: line for line in taken.phase_lines}
        shares = taken.phases.items()
        rows = (
            PhaseShare(name, share, taken.phase_errors[name], lines.get(name))
            for name, share in shares
        )
        return Rows(PhaseShare, rows)

    @property
    def steps(self) -> Steps:
        """How many steps there were, and how fast they came."""
        return self.summary().steps

    @property
    def processes(self) -> Rows[ProcessSummary]:
        """The processes by rank, each worker after its parent."""
        return Rows(ProcessSummary, self.summary().processes)

    def lines(self, *, gpus: bool = True, **words: Unpack[Selectors]) -> Rows[FunctionRow]:
        """Return the user's lines, those with the most time at them or below first.

        Without ``gpus`` it is left out how busy these were, which may take most of the time.
        """
        with self.reader.one_moment():
            selection = select(self.reader, words)
            return Rows(FunctionRow, answered(take_lines, self.reader, selection, gpus))

    def stacks(self, *, main_threads: bool = True, **words: Unpack[Selectors]) -> Rows[StackTime]:
        """Return the stacks of each thread, those with the most time first.

        Without ``main_threads`` all threads are taken.
        """
        with self.reader.one_moment():
            reader, selection = self.reader, select(self.reader, words, main_threads=main_threads)
            phases, rows = PhaseIndex(reader), []
            weights = process_weights(reader, take_lives(reader), selection.time)

            @functools.cache
            def frames_of(stack: int) -> tuple[str, str, int, tuple[str, ...]]:
                frames = reader.frames_of(stack)
                leaf = frames[-1]
                return leaf.function, leaf.file, leaf.line, tuple(one.label for one in frames)

            for total in selected_totals(reader, selection, phases):
                thread = reader.threads[total.thread]
                process = reader.processes[thread.process]
                rows.append(
                    StackTime(
                        *(process.pid, process.role, process.rank, thread.name, thread.os_tid),
                        phases.of_stack(total.stack),
                        total.samples,
                        total.duration_ns * weights[process.id] / SECOND_NS,
                        *frames_of(total.stack),
                    )
                )
        rows.sort(key=lambda row: -row.seconds)
        return Rows(StackTime, rows)

    def metrics(self, *names: str, **words: Unpack[Selectors]) -> Rows[MetricPoint]:
        """Return the readings of series of these names, or of all, of a range and its processes.

        docs/file-format.md lists the series. Those of devices and the host belong to every process.
        """
        with self.reader.one_moment():
            found = series_rows(self.reader, select(self.reader, words), *names)
            return Rows(MetricPoint, (MetricPoint(*row) for row in found))  # type: ignore[arg-type]

    def diff(
        self, new: Run, *, least: float = LEAST, alike: float = ALIKE, **words: Unpack[Selectors]
    ) -> Diff:
        """Return what changed from this run to another, as ``profd diff --json`` has it.

        ``least`` and ``alike`` are the command's options, as shares of a step, 0 to 1.
        """
        first, second = self.reader, new.reader
        with first.one_moment(), second.one_moment():
            selections = select(first, words), select(second, words)
            parts = map(partial(answered, take_compared), (first, second), selections)
            return take_diff(*parts, least=least, alike=alike)

    def __repr__(self) -> str:
        info = self.info
        return f"<Run {info.id}, {info.state}, {duration(info.time.length_s)}>"

    def _repr_html_(self) -> str:
        """Return summary and flame graph for a notebook.

        The graph is a picture of its own: what stands in it reaches nothing of the page.
        """
        text = escape(summary_text(self.summary(), 100))
        with self.reader.one_moment():
            graph = base64.b64encode(flame_graph_svg(self.reader, MAIN_THREADS)).decode()
        style = 'alt="flame graph" style="width:100%;max-width:900px"'
        return f'<pre>{text}</pre><img {style} src="data:image/svg+xml;base64,{graph}">'


def take_lines(
    reader: RunReader, selection: Selection = MAIN_THREADS, gpus: bool = True
) -> list[FunctionRow]:
    phases = PhaseIndex(reader)
    profile = take_profile(reader, selection, phases)
    busy = utilization_by_stack(reader, GpuTracks(reader), selection, phases) if gpus else {}
    rows = hot_functions(reader, profile, busy, lines_by_stack(reader, phases))
    return sorted(rows, key=lambda row: -row.total_share)


def open_run(run: str | os.PathLike[str] = paths.LATEST, *, job: str | None = None) -> Run:
    """Open a run for reading, live or finished.

    ``run`` is what commands take: a path, an id, a unique prefix of an id or name, ``"latest"``, a
    folder with the files of all nodes of a job, or the URL of a file or folder. ``job`` names the
    job if the folder holds several. Raises NoSuchRun, RunUnreadable, UsageError, MissingTool.
    """
    word = run if isinstance(run, str) else os.fspath(Path(run).absolute())
    notes: list[str] = []
    with contextlib.ExitStack() as files:
        reader = files.enter_context(opened(word, job, notes.append))
        return Run(reader, notes, files.pop_all())
