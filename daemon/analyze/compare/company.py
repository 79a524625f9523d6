"""How busy others kept the cores beside a run's own, and by how much that may make its steps longer.

Who computes on the neighboring core takes cache, memory traffic and, where two logical cores share a physical one, a
part of its execution units; who computes on the same core takes all of it for a while. Both make a whole run slower or
faster, which no unrest within the run tells.
"""

from __future__ import annotations

import statistics

import msgspec

from profd.daemon.analyze.cores import PRESSURE, machine_cores, main_thread_cores, own_core_wait
from profd.daemon.analyze.course import take_course
from profd.daemon.analyze.coverage import COST_SERIES, mean_of_series
from profd.daemon.analyze.selection import Selection
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import SeriesRow

# Steps of a loop in Python take 1.4 to 1.7 times as long while the other logical core of a physical one is busy.
_OF_MORE_COMPANY = 0.5
# As much company in both runs is not the same company: beside one that kept a third of a core busy in either, steps
# differed by up to 6.4 %.
_OF_ANY_COMPANY = 0.25


class Company(msgspec.Struct, frozen=True):
    """What others took of the machine while a run was recorded.

    ``others`` is the share of the cores, one of them left out, that neither the run nor profd kept busy, but others;
    what a hypervisor gave to other machines counts. ``lacking`` is for how long main threads waited for a core, or may
    have, as a share of the time.
    """

    others: float
    lacking: float


def take_company(reader: RunReader, part: Selection) -> Company | None:
    """Return the company in a selection's range of time; None where the machine's CPU time was not read."""
    busy, cores = mean_of_series(reader, "host_cpu_share", None, part), machine_cores(reader)
    if busy is None or not cores:
        return None
    own = sum(_cores(reader, row, part) for row in reader.series.values() if _is_own(row))
    others = busy * cores - own - (mean_of_series(reader, COST_SERIES, None, part) or 0.0)
    return Company(min(max(others, 0.0) / max(cores - 1, 1), 1.0), _lacking(reader, part))


def slowing(base: Company | None, new: Company | None) -> float:
    """Return the part of a step that company may have added in one of two runs; 0 where it is not known."""
    if base is None or new is None:
        return 0.0
    beside = _OF_MORE_COMPANY * abs(new.others - base.others) + _OF_ANY_COMPANY * max(base.others, new.others)
    longer = sorted(1 / (1 - min(side.lacking, 0.99)) for side in (base, new))
    return beside + longer[1] / longer[0] - 1 + _OF_ANY_COMPANY * (longer[1] - 1)


def _lacking(reader: RunReader, part: Selection) -> float:
    """Return for which share of the time main threads had no core, or the most that it may have been.

    Where the kernel does not tell it of them, it is no longer than any task of the machine waited.
    """
    mains = [row.id for row in reader.processes.values() if row.role == "main"]
    waited = own_core_wait(mains, lambda name, process: mean_of_series(reader, name, process, part))
    if waited is not None:
        return waited
    known = [main_thread_cores(reader, process, part.from_ns, part.to_ns) for process in mains]
    off = [1 - min(cores, 1.0) for cores in known if cores is not None]
    pressure = mean_of_series(reader, PRESSURE, None, part) or 0.0
    return min(statistics.fmean(off), pressure) if off else pressure


def _is_own(row: SeriesRow) -> bool:
    return row.name == "cpu_cores" and row.process is not None and row.os_tid is None


def _cores(reader: RunReader, row: SeriesRow, part: Selection) -> float:
    """Return the mean number of cores that a process used, over the whole part: it may have lived for less."""
    assert row.process is not None and part.from_ns is not None and part.to_ns is not None  # noqa: PT018
    process = reader.processes[row.process]
    start_ns = max(process.seen_ns, part.from_ns)
    end_ns = min(process.ended_ns or part.to_ns, part.to_ns)
    mean = take_course(reader, row.id, start_ns, end_ns).total().mean
    return (mean or 0.0) * max(end_ns - start_ns, 0) / max(part.to_ns - part.from_ns, 1)
