"""How much of a run its samples rest on: the share of time covered, of stacks torn, and what sampling cost."""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.course import take_course
from profd.daemon.analyze.lives import Lives, take_lives
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow, RunInfo

COST_SERIES = "profd_cpu_cores"


class Coverage(msgspec.Struct, frozen=True):
    """The quality of a selection's samples; None where nothing is known.

    ``share``: of the time for which the training processes lived and were under profd, the part that lies in recordings
    with samples. It begins with a process's first recording (before that nobody was attached) and ends with the
    process, with the run, or, in a live run, with the last recording written, as the next one is only in flight. A
    process that was never recorded counts from when it was seen, as not covered at all.
    ``torn_share``: of the stacks that were read in all processes, the part dropped as impossible.
    ``cost_core_share``: what profd and its samplers used on average, in cores.
    """

    share: float | None
    torn_share: float | None
    cost_core_share: float | None


def take_coverage(reader: RunReader, selection: Selection) -> Coverage:
    """Return the coverage of a selection's range of time, over its processes of role main."""
    recorded = reader.recorded(selection.from_ns, selection.to_ns)
    return Coverage(
        share=covered_share(reader, take_lives(reader), selection),
        torn_share=recorded.torn_share,
        cost_core_share=mean_of_series(reader, COST_SERIES, None, selection),
    )


def mean_of_series(
    reader: RunReader, name: str, process: int | None, selection: Selection, device: str | None = None
) -> float | None:
    """Return the mean of a series over a selection's range of time; None where nothing is known of it there."""
    series = reader.find_series(name, process, device)
    if series is None:
        return None
    return take_course(reader, series.id, selection.from_ns, selection.to_ns).total().mean


def covered_share(reader: RunReader, lives: Lives, selection: Selection) -> float | None:
    """Return the share of a selection's range of time that is covered; None where no process was to be sampled."""
    lived_ns = covered_ns = 0
    for process in reader.processes.values():
        if process.role == "main" and selection.takes_process(process):
            cover = lives.cover(process.id)
            start_ns, end_ns = sampled_life(process, reader.info, cover.start_ns, cover.end_ns)
            start_ns = start_ns if selection.from_ns is None else max(start_ns, selection.from_ns)
            end_ns = end_ns if selection.to_ns is None else min(end_ns, selection.to_ns)
            lived_ns += max(end_ns - start_ns, 0)
            covered_ns += cover.between(start_ns, end_ns)
    return covered_ns / lived_ns if lived_ns else None


def sampled_life(process: ProcessRow, run: RunInfo, first_ns: int | None, last_ns: int | None) -> tuple[int, int]:
    """Return from when to when a process was to be sampled; see ``Coverage.share``.

    ``first_ns`` is when its first recording with samples begins, ``last_ns`` when the last one ends; None: none did.
    """
    start_ns = process.seen_ns if first_ns is None else first_ns
    if run.state == "live" and process.ended_ns is None and last_ns is not None:
        return start_ns, last_ns
    return start_ns, process.ended_ns or run.end_ns
