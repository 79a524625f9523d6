"""The minutes of a recorded run, as data sets of any size are drawn from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy

from profd.daemon.fleet.tables import Minute, RunSource, take_minutes
from profd.daemon.store.reader import RunReader

Numbers = numpy.ndarray[Any, Any]


class Template(NamedTuple):
    """A recorded run by the minute: rows ``starts[i]`` to ``starts[i + 1]`` are those of minute
    ``i``.
    """

    stacks: list[tuple[Any, ...]]
    phases: Numbers
    starts: Numbers
    stack: Numbers
    samples: Numbers
    time_ns: Numbers
    thread: Numbers
    threads: list[tuple[str, str, bool]]

    @property
    def rows_a_minute(self) -> float:
        """How many rows a minute has in the mean."""
        return float(self.starts[-1]) / (len(self.starts) - 1)


def take_template(path: Path) -> Template:
    """Read the whole minutes of the first training process of a run, or what it has of one minute."""
    with RunReader(path) as reader, reader.one_moment():
        source = RunSource(reader)
        minutes = sorted(
            _of_whole_minutes(reader, list(take_minutes(reader))), key=lambda one: one.minute_ns
        )
        ids = {
            stack: number for number, stack in enumerate(sorted({one.stack for one in minutes}), 1)
        }
        threads = sorted({_thread(reader, one.thread) for one in minutes})
        numbers = {name: number for number, name in enumerate(threads)}
        stacks = [_stack(source, stack, number) for stack, number in ids.items()]
        _, starts = numpy.unique([one.minute_ns for one in minutes], return_index=True)
        return Template(
            stacks=stacks,
            phases=numpy.array(["", *(row[1] for row in stacks)], dtype=object),
            starts=numpy.append(starts, len(minutes)),
            stack=numpy.array([ids[one.stack] for one in minutes]),
            samples=numpy.array([one.samples for one in minutes]),
            time_ns=numpy.array([one.time_ns for one in minutes]),
            thread=numpy.array([numbers[_thread(reader, one.thread)] for one in minutes]),
            threads=threads,
        )


def _of_whole_minutes(reader: RunReader, minutes: list[Minute]) -> list[Minute]:
    """Leave out the last minute where there are others: it is no whole one."""
    last_ns = max(one.minute_ns for one in minutes)
    first_ns = min(one.minute_ns for one in minutes)
    return [one for one in minutes if one.minute_ns < last_ns] if last_ns > first_ns else minutes


def _thread(reader: RunReader, thread: int) -> tuple[str, str, bool]:
    row = reader.threads[thread]
    return reader.processes[row.process].role, row.name, row.is_main


def _stack(source: RunSource, stack: int, number: int) -> tuple[Any, ...]:
    """Return the columns of table ``stacks`` from ``stack`` on."""
    frames = source.reader.frames_of(stack)
    leaf = frames[-1]
    own = next((frame for frame in reversed(frames) if not frame.is_library), None)
    place = (None, None, None) if own is None else (own.function, own.file, own.line)
    path = ";".join(frame.label for frame in frames)
    return (
        number,
        source.phases.of_stack(stack),
        leaf.function,
        leaf.file,
        leaf.line,
        *place,
        path,
    )
