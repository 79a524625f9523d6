"""Steps of a loop by how often its lines come round: for loops that show neither a counter nor phases of a training.

Looked at are the user's functions that are on the main thread's stack nearly all the time, innermost first: a loop at
the top level of a script is in ``<module>``. Knows nothing of counters.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from profd.daemon.analyze.steps.cycles import Cycles, Seen, count_cycles
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow, IntervalRow

LEAST_PRESENCE = 0.6
LEAST_SHARE = 0.03
MOST_LINES = 8
LEAST_EXACT = 0.15
SELDOM_SHARE = 0.5


class LineCycles(NamedTuple):
    """A line and how often it came round."""

    line: FrameRow
    cycles: Cycles

    @property
    def error_share(self) -> float:
        """By what share of it the count may be wrong."""
        return self.cycles.error / self.cycles.count


def count_lines(reader: RunReader, intervals: Sequence[IntervalRow]) -> LineCycles | None:
    """Count by the line that tells most exactly; None where none tells to a seventh.

    ``intervals`` are those of one thread, in order of time.
    """
    lines = _Lines(reader, intervals)
    for function in lines.functions():
        counted = ((line, lines.count(line, function)) for line in function)
        found = [LineCycles(reader.frames[line], cycles) for line, cycles in counted if cycles is not None]
        most = max((one.cycles.count for one in found), default=0.0)
        # A line that comes round once an epoch is counted more exactly, and is none of a step.
        often = [one for one in found if one.cycles.count >= SELDOM_SHARE * most]
        best = min(often, key=lambda one: one.error_share, default=None)
        if best is not None and best.error_share <= LEAST_EXACT:
            return best
    return None


class _Lines:
    """The user's lines on the stacks of a thread, by the ids of their frames."""

    def __init__(self, reader: RunReader, intervals: Sequence[IntervalRow]) -> None:
        self._reader = reader
        self._intervals = intervals
        self._stack_ns: defaultdict[int, int] = defaultdict(int)
        for row in intervals:
            self._stack_ns[row.stack] += row.duration_ns
        self._of_stack = {
            stack: tuple(frame.id for frame in reader.frames_of(stack) if not frame.is_library)
            for stack in self._stack_ns
        }

    def count(self, line: int, function: Sequence[int]) -> Cycles | None:
        """Count the visits of a line of a function.

        The time outside of the function, and that of its lines that come round much more seldom, is left out of their
        distances: what comes after an epoch is no step, and may last as long as one.
        """
        visits = self._visits(line)
        seldom = {other for other in function if self._visits(other) < SELDOM_SHARE * visits}
        inside, usual = self._stacks_with({line}), self._stacks_with(set(function) - seldom)
        seen, left_out_ns = [], 0
        for row in self._intervals:
            seen.append(Seen(row.start_ns - left_out_ns, row.stack in inside, row.samples))
            left_out_ns += row.duration_ns if row.stack not in usual else 0
        cycles = count_cycles(seen)
        # Whatever is left out at the ends of all is little beside the rest.
        return cycles and msgspec.structs.replace(cycles, took_ns=cycles.took_ns + left_out_ns)

    def _visits(self, line: int) -> int:
        """Return how often a line came to be on the stack."""
        stacks = self._stacks_with({line})
        places = [row.stack in stacks for row in self._intervals]
        return sum(now and not before for before, now in itertools.pairwise([False, *places]))

    def _stacks_with(self, lines: set[int]) -> set[int]:
        return {stack for stack, found in self._of_stack.items() if not lines.isdisjoint(found)}

    def functions(self) -> list[list[int]]:
        """Return the lines of each function that is nearly always on the stack, innermost function first."""
        took_ns, depths = self._times()
        total_ns = sum(self._stack_ns.values()) or 1
        of_function: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        # Those first that are on the stack for half of the time: of such the fewest visits are missed.
        for line in sorted(took_ns, key=lambda line: abs(took_ns[line] / total_ns - 0.5)):
            frame = self._reader.frames[line]
            of_function[frame.function, frame.file].append(line)
        always = [
            lines for lines in of_function.values() if sum(took_ns[line] for line in lines) >= LEAST_PRESENCE * total_ns
        ]
        always.sort(key=lambda lines: -min(depths[line] for line in lines))
        return [[line for line in lines if took_ns[line] >= LEAST_SHARE * total_ns][:MOST_LINES] for lines in always]

    def _times(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return how long each line was on the stack, and how deep."""
        took_ns: defaultdict[int, int] = defaultdict(int)
        depths: dict[int, int] = {}
        for stack, stack_ns in self._stack_ns.items():
            for depth, line in enumerate(self._of_stack[stack]):
                took_ns[line] += stack_ns
                depths[line] = min(depth, depths.get(line, depth))
        return took_ns, depths
