"""What profd tells of a program's steps, beside the diary that the program kept of them.

The diary is that of ``tests/programs/steploops/diary.py``: ``time_ns steps batches number``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.analyze.steps import Steps, take_steps
from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import STEP_COUNT, STEP_ERROR
from profd.daemon.store.rows import PointRow

NEAR = 1
"""How many steps a count may be off, to be right: one is always being made."""


class Made:
    """When each step ended, or each batch."""

    def __init__(self, ended_ns: Sequence[int]) -> None:
        self.ended_ns = ended_ns

    def whole(self, at_ns: int) -> int:
        """Return how many had ended."""
        return bisect_right(self.ended_ns, at_ns)

    def exact(self, at_ns: int) -> float:
        """Return how many had ended, and what share of the next one was over."""
        made = self.whole(at_ns)
        if not 0 < made < len(self.ended_ns):
            return made
        before_ns, after_ns = self.ended_ns[made - 1], self.ended_ns[made]
        return made + (at_ns - before_ns) / (after_ns - before_ns)


class Diary:
    """The steps that a program made, its batches where several of them make a step, and its own
    numbers.
    """

    def __init__(self, path: Path) -> None:
        text = path.read_text() if path.exists() else ""
        # What follows on the last line end was not written to its end.
        rows = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        self.steps = Made(_risen(rows, 1))
        batches = Made(_risen(rows, 2))
        self.batches = None if batches.ended_ns == self.steps.ended_ns else batches
        self._numbers = _running(rows)

    @property
    def number_of_first(self) -> int | None:
        """What the script itself calls its first step; None: it has no one running number."""
        return self._numbers[0] if self._numbers else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was trained."""
        return not self.steps.ended_ns

    def number_error(self, point: PointRow) -> float | None:
        """Return how far a count is from the script's own number at its time.

        None: it is no one running number.

        While a step is made either number is right, that of the last one and that of this one.
        """
        made = self.steps.whole(point.at_ns)
        if self._numbers is None or not 0 < made < len(self._numbers):
            return None
        low, high = self._numbers[made - 1], self._numbers[made]
        return max(low - point.value, point.value - high, 0.0)


class Reported(NamedTuple):
    """What profd reported of a run, and how far it is from the diary.

    ``difference`` is that of its counts, the worst of them, against the first one; ``number_error``
    that of the counts as they are against the script's own number. Both are None where there was
    none. ``rate_error`` is a share.
    """

    source: str
    unit: str
    difference: float | None
    number_error: float | None
    rate_error: float
    broken: tuple[str, ...]
    """The errors that were stated and did not hold, in words."""


def judge(run_file: Path, diary: Diary) -> Reported | None:
    """Compare a run with the diary of its program; None: profd reported no steps."""
    with RunReader(run_file) as reader:
        steps = take_steps(reader, MAIN_THREADS, PhaseIndex(reader))
        counts, errors = points(reader, STEP_COUNT), points(reader, STEP_ERROR)
        source = _source(reader, steps)
        run_ns = reader.info.started_ns, reader.info.end_ns
    if steps.per_s is None and not counts:
        return None
    units = {"steps": diary.steps, **({"batches": diary.batches} if diary.batches else {})}
    if diary.is_empty:
        return Reported(source, "steps", None, None, 0.0, ())
    unit = min(units, key=lambda name: abs(_rate_error(units[name], steps, counts, run_ns)))
    made = units[unit]
    misses = _misses(made, counts)
    numbers = (
        []
        if unit != "steps"
        else [one for point in counts if (one := diary.number_error(point)) is not None]
    )
    return Reported(
        source,
        unit,
        max(map(abs, misses), default=None),
        max(numbers, default=None),
        abs(_rate_error(made, steps, counts, run_ns)),
        (*_broken_counts(misses, counts, errors), *_broken_steps(made, steps, counts, run_ns)),
    )


def points(reader: RunReader, name: str) -> list[PointRow]:
    """Return a series of the process whose steps are counted; of several the longest."""
    found = [reader.points(row.id) for row in reader.list_series(name)]
    return max(found, key=len, default=[])


def _misses(made: Made, counts: Sequence[PointRow]) -> list[float]:
    """Return by how many steps each count is too high, against the first one."""
    return [
        (point.value - counts[0].value) - (made.whole(point.at_ns) - made.whole(counts[0].at_ns))
        for point in counts
    ]


def _rate_error(
    made: Made, steps: Steps, counts: Sequence[PointRow], run_ns: tuple[int, int]
) -> float:
    """Return the share by which a rate is too high, against whole steps where they were counted."""
    from_ns, to_ns = _range(counts, run_ns)
    if steps.per_s is None:
        return float("inf")
    true = _made(made, counts, from_ns, to_ns)
    said = steps.per_s * (to_ns - from_ns) / SECOND_NS
    return (said - true) / true if true else (0.0 if said < NEAR else float("inf"))


def _broken_counts(
    misses: Sequence[float], counts: Sequence[PointRow], errors: Sequence[PointRow]
) -> list[str]:
    """Return the worst count that is further off than the error beside it says, in words."""
    stated = {point.at_ns: point.value for point in errors}
    beyond = []
    for miss, point in zip(misses, counts, strict=True):
        allowed = max(NEAR, stated.get(counts[0].at_ns, 0.0) + stated.get(point.at_ns, 0.0))
        if abs(miss) > allowed:
            beyond.append((abs(miss) - allowed, f"count off by {miss:+.1f}, stated {allowed:.1f}"))
    return [max(beyond)[1]] if beyond else []


def _broken_steps(
    made: Made, steps: Steps, counts: Sequence[PointRow], run_ns: tuple[int, int]
) -> list[str]:
    """Return which of the errors that a summary states do not hold, in words."""
    broken = []
    from_ns, to_ns = _range(counts, run_ns)
    all_made = _made(made, counts, from_ns, to_ns)
    true = all_made * SECOND_NS / (to_ns - from_ns)
    allowed = (
        None if steps.per_s_error is None else steps.per_s_error * (1 + 1e-9)
    )  # one step off is just within it
    if steps.per_s is not None and allowed is not None and abs(steps.per_s - true) > allowed:
        broken.append(f"{steps.per_s:.3f} ± {steps.per_s_error:.3f} a second, in truth {true:.3f}")
    # A count of an attached run is that of the time between its counts.
    if (
        steps.count is not None
        and steps.count_error is not None
        and abs(steps.count - all_made) > steps.count_error
    ):
        broken.append(f"{steps.count} ± {steps.count_error} counted, in truth {all_made:.1f}")
    return broken


def _made(made: Made, counts: Sequence[PointRow], from_ns: int, to_ns: int) -> float:
    """Return how many steps were made.

    Whole ones where they were counted: in a pause no step is in part made.
    """
    one = made.whole if _is_counted(counts) else made.exact
    return one(to_ns) - one(from_ns)


def _is_counted(counts: Sequence[PointRow]) -> bool:
    return len(counts) > 1 and counts[-1].at_ns > counts[0].at_ns


def _range(counts: Sequence[PointRow], run_ns: tuple[int, int]) -> tuple[int, int]:
    """Return the time that a rate is of: from the first to the last count, else all of the run."""
    return (counts[0].at_ns, counts[-1].at_ns) if _is_counted(counts) else run_ns


def _source(reader: RunReader, steps: Steps) -> str:
    """Return what was counted, without its place; of several that which was named last."""
    named = [event.text for event in reader.events() if event.kind == EventKind.STEP_SOURCE]
    text = named[-1] if named else steps.source or "counts"
    return text.partition(" (")[0]


def _risen(rows: Sequence[Sequence[str]], column: int) -> list[int]:
    """Return when the numbers of a column went up."""
    risen, last = [], 0
    for row in rows:
        if int(row[column]) > last:
            last = int(row[column])
            risen.append(int(row[0]))
    return risen


def _running(rows: Sequence[Sequence[str]]) -> list[int] | None:
    """Return the script's own number of each step.

    None where it is not one number that goes up by one each.
    """
    numbers, last = [], 0
    for row in rows:
        if int(row[1]) > last:
            last = int(row[1])
            if row[3] == "-":
                return None
            numbers.append(int(row[3]))
    return numbers if all(after == before + 1 for before, after in pairwise(numbers)) else None
