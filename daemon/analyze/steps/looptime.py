"""When a loop was stepping, by the stacks of the main thread: not aside of it, to evaluate, save or compile.

A target that ends cannot be read once more, and a counter is found only some time after its loop began. But the stacks
go from the first step to the last, and show the lines of the loop's function while it runs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence, Set
from typing import NamedTuple

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, PointRow

# How the recording side names a counter; see the events of kind `counter` in docs/file-format.md.
_NAMED = re.compile(r"loop counter `.+` in (?P<function>.+) \((?P<file>.+):\d+\)")
# An interval that began so long ago may reach into a range of time.
_LONGEST_NS = 30 * SECOND_NS
# So long after it was found at most, a process that is attached to is sampled: it does what it did all the while.
_UNSAMPLED_NS = 2 * SECOND_NS
# The function of a generator is on the stack only while the loop waits for its next item.
_LEAST_PRESENCE = 0.5
# A program starts up once; what looks as if it did that so often within its loop is a part of each step.
_STARTUPS_IN_STEPS = 3
COMPILE = "compile"
STARTUP = "startup, import"
ASIDE = frozenset({STARTUP, COMPILE, "evaluation", "checkpoint"})
"""Phases in which no step is made."""


class _Stay(NamedTuple):
    """A part of the time that the main thread stood in one stack, with the lines of the loop's function on it."""

    start_ns: int
    end_ns: int
    stack: int
    lines: frozenset[int]
    phase: str | None

    def within(self, from_ns: int, to_ns: int) -> int:
        """Return how much of it lies in a range of time."""
        return max(min(self.end_ns, to_ns) - max(self.start_ns, from_ns), 0)


class LoopTime:
    """The time that a loop was stepping in [from_ns, to_ns).

    ``source`` names its counter; between some ``counts`` of it are the lines that the loop is known by.
    """

    def __init__(
        self,
        reader: RunReader,
        phases: PhaseIndex,
        process: int,
        source: str | None,
        range_ns: tuple[int, int],
        counts: Sequence[PointRow],
    ) -> None:
        named = _NAMED.fullmatch(source or "")
        self._stays = _stays(reader, phases, process, named, range_ns)
        first_ns, last_ns = counts[0].at_ns, counts[-1].at_ns
        between = [(stay, stay.within(first_ns, last_ns)) for stay in self._stays]
        self._looping = frozenset[int]().union(*(stay.lines for stay, length_ns in between if length_ns))
        startups = sum(stay.phase == STARTUP and bool(stay.lines and length_ns) for stay, length_ns in between)
        self._starts_in_steps = startups >= _STARTUPS_IN_STEPS
        present_ns = sum(length_ns for stay, length_ns in between if stay.lines)
        is_seldom = present_ns < _LEAST_PRESENCE * sum(length_ns for _, length_ns in between)
        self._is_seldom = is_seldom or (named is not None and named["function"].endswith("__iter__"))
        self._hull_ns = range_ns
        if self._looping:
            seen = [stay for stay in self._stays if self._looping & stay.lines]
            entered_ns, left_ns = min(stay.start_ns for stay in seen), max(stay.end_ns for stay in seen)
            if self._is_seldom:
                away_ns = self._longest_absence_ns(seen, first_ns, last_ns)
                body = {stay.stack for stay, length_ns in between if length_ns}
                early = [stay for stay in self._stays if stay.end_ns <= entered_ns]
                late = [stay for stay in self._stays if stay.start_ns >= left_ns]
                entered_ns -= min(_unbroken_ns(early[::-1], body), away_ns)
                left_ns += min(_unbroken_ns(late, body), away_ns)
            self._hull_ns = min(entered_ns, first_ns), max(left_ns, last_ns)

    def _longest_absence_ns(self, seen: Sequence[_Stay], first_ns: int, last_ns: int) -> int:
        """Return for how long, between two times, a loop was not seen that went on: it may be so before and after."""
        away = [
            (before.end_ns, after.start_ns)
            for before, after in itertools.pairwise(seen)
            if first_ns <= before.end_ns and after.start_ns <= last_ns
        ]
        return max((to_ns - from_ns - self._aside_ns(from_ns, to_ns) for from_ns, to_ns in away), default=0)

    def _aside_ns(self, from_ns: int, to_ns: int) -> int:
        return sum(stay.within(from_ns, to_ns) for stay in self._stays if self._is_aside(stay))

    def _is_aside(self, stay: _Stay) -> bool:
        """Say whether no step is made in a stay."""
        is_in_step = self._starts_in_steps and stay.phase == STARTUP and bool(self._looping & stay.lines)
        return stay.phase in ASIDE and not is_in_step

    def stepping_ns(self, from_ns: int, to_ns: int) -> float:
        """Return how much of a range of time the loop was stepping; all of it where no samples tell."""
        if not any(stay.within(from_ns, to_ns) for stay in self._stays):
            return max(to_ns - from_ns, 0)
        return sum(self._stepping_in(stay, from_ns, to_ns) for stay in self._stays)

    def _stepping_in(self, stay: _Stay, from_ns: int, to_ns: int) -> int:
        entered_ns, left_ns = self._hull_ns
        is_told = self._is_seldom or not self._looping or bool(self._looping & stay.lines)
        return 0 if self._is_aside(stay) or not is_told else stay.within(max(from_ns, entered_ns), min(to_ns, left_ns))


def _unbroken_ns(stays: Sequence[_Stay], body: Set[int]) -> int:
    """Return how long the first of some stays last that are in stacks of a loop's body."""
    inside = itertools.takewhile(lambda stay: stay.stack in body, stays)
    return sum(stay.end_ns - stay.start_ns for stay in inside)


def _stays(
    reader: RunReader, phases: PhaseIndex, process: int, named: re.Match[str] | None, range_ns: tuple[int, int]
) -> list[_Stay]:
    """Return what the main thread of a process did in a range of time: the same until it was seen again.

    What it was first seen doing it did since it was found, a few tenths of a second before, where it had been running.
    After the last sample it did nothing: an interpreter that ends has no frames.
    """
    thread = next((row for row in reader.threads.values() if row.process == process and row.is_main), None)
    if thread is None:
        return []
    rows = list(reader.intervals(range_ns[0] - _LONGEST_NS, range_ns[1], [thread.id]))
    told = {stack: (_lines_of(reader, stack, named), phases.of_stack(stack)) for stack in {row.stack for row in rows}}
    begins_ns = [row.start_ns for row in rows]
    seen_ns = reader.processes[process].seen_ns
    if reader.info.mode == "attached" and rows and 0 < rows[0].start_ns - seen_ns < _UNSAMPLED_NS:
        begins_ns[0] = seen_ns
    ends_ns = [*(row.start_ns for row in rows[1:]), *(row.start_ns + row.duration_ns for row in rows[-1:])]
    return [
        _Stay(begin_ns, end_ns, row.stack, *told[row.stack])
        for row, begin_ns, end_ns in zip(rows, begins_ns, ends_ns, strict=True)
    ]


def _lines_of(reader: RunReader, stack: int, named: re.Match[str] | None) -> frozenset[int]:
    """Return the lines of the loop's function on a stack; none where the loop has no name."""
    if named is None:
        return frozenset()
    return frozenset(frame.line for frame in reader.frames_of(stack) if _is_of(frame, named))


def _is_of(frame: FrameRow, named: re.Match[str]) -> bool:
    return frame.function == named["function"] and frame.file.endswith(named["file"])
