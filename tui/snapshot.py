"""What the feed hands to the screens: a run at one moment, frozen and complete for one view."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from profd.daemon.analyze.profile import FunctionRow, PhaseLine
from profd.daemon.findings.finding import Finding
from profd.daemon.store.rows import EventRow, ProcessRow, RunInfo
from profd.daemon.timerange import TimeRange
from profd.daemon.units import time_range
from profd.tui.columns import Ruler
from profd.tui.scrub import Mark
from profd.tui.view import View


class Steps(msgspec.Struct, frozen=True):
    """The script's step, and its rate over the last ten seconds.

    ``step`` and ``per_s`` are None while the training runs in a loop that nothing counts; ``step``
    stays None afterwards. ``exactness`` goes before the number: ``~`` if the step is estimated by
    that rate from the last count, a second ago. ``pauses`` says that the loop stands still.
    ``made`` is the number of all steps of a run that has ended, as the summary counts them, with
    the summary's word for its exactness; ``per_s`` is then the rate over all of them, without
    pauses. ``made`` is None while the run is live.
    """

    step: int | None
    per_s: float | None
    made: int | None = None
    exactness: str = ""
    pauses: bool = False


PhaseShares = Mapping[str, float]
"""Shares of the samples by phase, 0 to 1; phases without any are left out."""


class Verdict(msgspec.Struct, frozen=True):
    """The largest phase of so many processes, and the user's line that called most of it.

    ``line`` is None if no line of the user is in its stacks; ``led_by`` is the thread, in words.
    It rests on so many ``samples``.
    """

    phase: str
    share: float
    line: PhaseLine | None
    processes: int
    led_by: str
    samples: int


class PhaseRow(msgspec.Struct, frozen=True):
    """A main thread on the timeline, as mixtures of its phases.

    There is one mixture for each column, and one over the whole view. A mixture is in the order of
    ``PHASES``, empty if nothing was seen; ``shares`` has the largest first.
    """

    label: str
    cells: tuple[PhaseShares, ...]
    shares: PhaseShares


class Series(msgspec.Struct, frozen=True):
    """A series of numbers on the timeline: its mean in each column, and one value for all.

    ``value`` is the newest (``kind`` now) of a live run, else the mean or the peak of the relevant
    columns. ``limit`` is its maximum, ``slope_per_s`` its trend: None if unknown.
    """

    name: str
    cells: tuple[float | None, ...]
    value: float | None
    kind: str
    limit: float | None = None
    slope_per_s: float | None = None
    is_growing: bool = False


class Timeline(msgspec.Struct, frozen=True):
    """The strips, each with a cell for every column of ``ruler``, and what happened.

    ``run`` is the time of the whole run.
    """

    ruler: Ruler
    run: TimeRange
    phase_rows: tuple[PhaseRow, ...]
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()


class ProcessState(msgspec.Struct, frozen=True):
    """A process of the tree: its ``depth``, numbers, and the usual place of its main thread.

    They are present values, or those of a range. In a range the CPU value is the mean, and all
    others are the last that were read. Values that nobody read are None. With a ``group`` of that
    name it stands for many workers, which follow it, and are ``folded``.
    """

    row: ProcessRow
    depth: int
    cpu_cores: float | None
    rss_bytes: float | None
    threads: float | None
    gpu_memory_bytes: float | None
    steps_per_s: float | None
    phase: str | None
    function: str
    where: str
    group: str = ""
    folded: bool = False


ALONE = "startup alone"


class Snapshot(msgspec.Struct, frozen=True):
    """A run at one moment.

    ``read_share`` is how much of the file has been read, 1 once all of it has. ``coverage`` is the
    share of the main processes' lives that was sampled. ``torn_share`` is the share of stacks that
    were dropped as impossible. Both are None if nothing was read yet. ``steps`` is None if nobody
    counts them. ``samples`` is the total to which the shares in ``functions`` refer, seen in
    ``time``. ``functions`` and ``processes`` are empty while another tab is open. In that of the
    user's lines the functions are these, and ``apart`` says whether they are without startup.
    ``per_s`` is the mean rate of the steps in that time, None if too few were counted.
    ``left_out`` counts the processes that ended long ago; ``process_rows`` has all that were seen.
    ``findings`` are those of the last part of a live run, else of all of it. ``is_diagnosed`` says
    whether they were looked for already, ``is_undiagnosable`` that they cannot be. ``view_cores``
    is the share of a core that the dashboard itself takes, None if that is not known yet. ``hang``
    is what was said of a hang that goes on, empty if there is none.
    """

    info: RunInfo
    view: View
    read_share: float
    workers: int
    coverage: float | None
    torn_share: float | None
    cost_cores: float | None
    steps: Steps | None
    verdict: Verdict | None
    timeline: Timeline
    functions: tuple[FunctionRow, ...]
    apart: str
    per_s: float | None
    scope_name: str
    samples: int
    time: TimeRange
    process_rows: tuple[ProcessRow, ...]
    processes: tuple[ProcessState, ...]
    left_out: int
    events: tuple[EventRow, ...]
    findings: tuple[Finding, ...] = ()
    is_diagnosed: bool = True
    is_undiagnosable: bool = False
    view_cores: float | None = None
    hang: str = ""

    @property
    def clock_times(self) -> str:
        """The time that the tables are about, as clocks showed it."""
        return "–".join(time_range(*self.time))  # noqa: RUF001
