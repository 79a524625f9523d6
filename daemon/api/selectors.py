"""What selects samples, in words: options of the command line, arguments in Python.

It imports little: a command's ``--help`` needs the names alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from profd.daemon.errors import UsageError
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.timerange import EVER, TimeRange

if TYPE_CHECKING:
    from profd.daemon.analyze.selection import Condition, Selection
    from profd.daemon.store.reader import RunReader
    from profd.daemon.store.rows import RunInfo


class Selectors(TypedDict, total=False):
    """Selects samples of a run; each narrows the others, and None narrows nothing.

    ``from_`` and ``to`` bound the time: seconds from the start of the run, or local time as
    ``"HH:MM:SS"``. ``rank`` is a rank of the job, ``process`` a PID, ``thread`` the name of a
    thread, ``phase`` a phase such as ``"forward"``. ``gpu_idle`` takes the time for which the GPUs
    of the process were utilized below so many percent on average, True for the usual 5. ``when``
    takes the time in which conditions held: ``("on-cpu",)``.

    Without ``process`` and ``thread`` the main threads of the training processes are taken.
    """

    from_: float | str | None
    to: float | str | None
    rank: int | None
    process: int | None
    thread: str | None
    phase: str | None
    gpu_idle: float | bool | None
    when: Sequence[str]


def select(reader: RunReader, words: Selectors, *, main_threads: bool = True) -> Selection:
    """Return the selection of a run's samples.

    Raises UsageError if the run lacks something that the words name.
    """
    from profd.daemon.analyze.phases import PHASES
    from profd.daemon.analyze.selection import Selection

    rank, pid = words.get("rank"), words.get("process")
    thread, phase = words.get("thread"), words.get("phase")
    time = _time_range(words.get("from_"), words.get("to"), reader.info)
    known = reader.processes.values()
    _check_known("rank", rank, {process.rank for process in known} - {None})
    _check_known("process", pid, {process.pid for process in known})
    _check_known("thread", thread, {thread.name for thread in reader.threads.values()})
    names = [one.name for one in PHASES]
    if phase is not None and phase not in names:
        raise UsageError(f"there is no phase {phase}", f"it is one of: {', '.join(names)}")
    return Selection(
        # A PID that was reused during the run has several rows.
        processes=None if pid is None else frozenset(row.id for row in known if row.pid == pid),
        rank=rank,
        thread=thread,
        phase=phase,
        main_threads=main_threads and pid is None and thread is None,
        when=_conditions(reader, words, time),
    ).during(time)


def _conditions(reader: RunReader, words: Selectors, time: TimeRange) -> tuple[Condition, ...]:
    """Return what is to hold; raises UsageError if the run cannot tell."""
    from profd.daemon.analyze.conditions import CONDITIONS, check
    from profd.daemon.analyze.selection import Condition

    percent, when = words.get("gpu_idle"), [*map(Condition, words.get("when", ()))]
    for one in when:
        _check_known("condition", one.name, set(CONDITIONS))
    if percent is not None and percent is not False:
        limit = RECORDING.idle_below if percent is True else percent / 100
        when.insert(0, Condition("gpu-idle", limit))
    check(reader, tuple(when), time)
    return tuple(when)


def _time_range(begin: float | str | None, end: float | str | None, info: RunInfo) -> TimeRange:
    """Return the time between two words.

    Raises UsageError if they are no range, or lie outside of the run.
    """
    from profd.daemon.analyze.selection import parse_time

    time = TimeRange(
        EVER.from_ns if begin is None else parse_time(str(begin), info),
        EVER.to_ns if end is None else parse_time(str(end), info),
    )
    if None not in (begin, end) and time.from_ns >= time.to_ns:
        raise UsageError(f"{begin} is not before {end}", "the range has to begin before it ends")
    if time.from_ns >= max(info.end_ns, info.started_ns + 1) or time.to_ns <= info.started_ns:
        from profd.daemon.units import duration, moment

        words = ("from", begin), ("to", end)
        asked = " ".join(f"{name} {word}" for name, word in words if word is not None)
        length = duration(info.time.length_s)
        raise UsageError(
            f"{asked} is outside of the run, which lasted {length} from {moment(info.started_ns)}",
            "give seconds from the start of the run, or HH:MM:SS of the time zone here",
        )
    return time


def _check_known(what: str, value: int | str | None, known: set[Any]) -> None:
    if value is not None and value not in known:
        listed = ", ".join(map(str, sorted(known)[:12])) or "none"
        raise UsageError(f"the run has no {what} {value}", f"it has: {listed}")
