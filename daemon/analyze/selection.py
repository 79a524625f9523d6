"""Which samples of a run are meant: time, processes, ranks, threads, phases and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.recordingconfig import RECORDING
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import ProcessRow, RunInfo
from profd.daemon.timerange import EVER, TimeRange


class Condition(msgspec.Struct, frozen=True):
    """Something that holds or not at a time; ``limit`` is its threshold, 0 to 1, if it has one."""

    name: str
    limit: float = RECORDING.idle_below


class Selection(msgspec.Struct, frozen=True):
    """A choice of samples; every field narrows it, and None narrows nothing.

    ``from_ns`` and ``to_ns`` are times of the run's clock, ``processes`` ids of rows (not PIDs),
    ``thread`` a name of a thread, ``phase`` a name of ``phases``. ``main_threads`` keeps only the
    main threads of the training processes: the question "where does the step go" is about them, and
    waiting threads would bury it. ``role`` keeps only the main threads of processes in that role.
    ``when`` keeps the time in which all of some conditions held, for each process by itself. Run
    files store selections.
    """

    from_ns: int | None = None
    to_ns: int | None = None
    processes: frozenset[int] | None = None
    rank: int | None = None
    thread: str | None = None
    phase: str | None = None
    main_threads: bool = False
    when: tuple[Condition, ...] = ()
    role: str | None = None

    @property
    def time(self) -> TimeRange:
        return TimeRange(
            EVER.from_ns if self.from_ns is None else self.from_ns,
            EVER.to_ns if self.to_ns is None else self.to_ns,
        )

    def time_in(self, reader: RunReader) -> TimeRange:
        """Return the selected part of the time of a run."""
        return self.time.within(reader.info.time)

    def during(self, time: TimeRange) -> Selection:
        to_ns = time.to_ns if time.has_end else None
        return msgspec.structs.replace(self, from_ns=time.from_ns or None, to_ns=to_ns)

    def trainers(self, reader: RunReader) -> list[ProcessRow]:
        return [row for row in reader.processes.values() if row.is_main and self.takes_process(row)]

    def takes_process(self, process: ProcessRow) -> bool:
        is_chosen = self.processes is None or process.id in self.processes
        is_chosen = is_chosen and self.role in (None, process.role)
        return is_chosen and (self.rank is None or process.rank == self.rank)

    def threads(self, reader: RunReader) -> frozenset[int]:
        """Return the threads whose samples belong to the selection, times and phases aside."""
        threads = reader.main_threads() if self.main_threads else reader.threads.values()
        return frozenset(
            thread.id
            for thread in threads
            if self.takes_process(reader.processes[thread.process])
            and (self.role is None or thread.is_main)
            and (self.thread is None or thread.name == self.thread)
        )


def leading_threads(reader: RunReader, selection: Selection) -> tuple[str, ...]:
    """Return the names of the threads that lead in place of the main ones."""
    rows = (reader.threads[thread] for thread in sorted(selection.threads(reader)))
    led = (row.name for row in rows if row.name and row.name != "MainThread")
    return tuple(dict.fromkeys(led))


def led_by(threads: Sequence[str]) -> str:
    """Return in words which of a process's threads leads, by the names of ``leading_threads``."""
    more = f" or another of {len(threads)}" if len(threads) > 1 else ""
    return f"thread {threads[0]}{more}" if {*threads} - {"MainThread"} else "the main thread"


_SLICES = 60


def spread(time: TimeRange, most_ns: int, slices: int | None = None) -> list[TimeRange]:
    """Return evenly spread slices of a range of time that are ``most_ns`` together.

    If the range is no longer than that, it is returned whole.
    """
    if time.length_ns <= most_ns:
        return [time]
    slices = slices or _SLICES
    return [TimeRange(part.from_ns, part.from_ns + most_ns // slices) for part in time.cut(slices)]


MAIN_THREADS = Selection(main_threads=True)  # the default of everything that shows shares of a step


def parse_time(word: str, info: RunInfo) -> int:
    """Return the moment that a word means in a run, in nanoseconds of its clock.

    A number is seconds from the start. ``HH:MM:SS`` is local time: its first occurrence after the
    start of the run, or before it if the run did not last until then. Raises UsageError for
    anything else.
    """
    try:
        at_ns = info.started_ns + int(float(word) * SECOND_NS)
        return min(max(at_ns, EVER.from_ns), EVER.to_ns)
    except (ValueError, OverflowError):
        pass
    started = datetime.fromtimestamp(info.started_ns / SECOND_NS)
    for layout in ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M"):
        try:
            time = datetime.strptime(word, layout).time()
        except ValueError:
            continue
        moment = datetime.combine(started.date(), time)
        tomorrow = moment + timedelta(days=1)
        if moment < started and tomorrow.timestamp() * SECOND_NS <= info.end_ns:
            moment = tomorrow
        return int(moment.timestamp() * SECOND_NS)
    raise UsageError(f"{word} is no time", "give seconds from the start of the run, or HH:MM:SS")
