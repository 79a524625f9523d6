"""The cursor's place in time, the chosen range, and the events marked on the axis.

These are plain values: every move gives another ``Scrub``.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from profd.daemon.clock import MINUTE_NS, SECOND_NS
from profd.daemon.events import Sign
from profd.daemon.store.rows import EventRow, WindowRow
from profd.daemon.timerange import EVER, TimeRange
from profd.tui.columns import Ruler
from profd.tui.view import shown_part

SPANS_NS = (30 * SECOND_NS, *(minutes * MINUTE_NS for minutes in (2, 10, 30, 120, 480)))
"""How much time the timeline can show, besides all of it."""


class Scrub(msgspec.Struct, frozen=True):
    """A place in the time of a run.

    The cursor is the column of the timeline to which it moved, as it was then. A range has one set
    end or both; an end that is not set is that of the run. ``span_ns`` and ``end_ns`` are those of
    ``View``.
    """

    cursor: TimeRange | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    span_ns: int | None = None
    end_ns: int | None = None

    @property
    def has_range(self) -> bool:
        return self.from_ns is not None or self.to_ns is not None

    @property
    def is_live(self) -> bool:
        """Whether the view goes on with the run: no cursor, range or fixed end holds it."""
        return self.cursor is None and not self.has_range and self.end_ns is None

    @property
    def chosen(self) -> TimeRange | None:
        """The time that the tables are about: the range, else the column of the cursor.

        None without either.
        """
        if not self.has_range:
            return self.cursor
        return TimeRange(self.from_ns or EVER.from_ns, self.to_ns or EVER.to_ns)

    def moved(self, columns: int, ruler: Ruler, run: TimeRange) -> Scrub:
        """Move the cursor; the first move takes it to the newest column."""
        if self.cursor is None:
            return self.at(min(ruler.to_ns, run.to_ns) - 1, ruler, run)
        return self.at(self.cursor.from_ns + columns * ruler.column_ns, ruler, run)

    def at(self, at_ns: int, ruler: Ruler, run: TimeRange) -> Scrub:
        """Move the cursor to the column of a time.

        The timeline moves along if it does not show that time.
        """
        at_ns = min(max(at_ns, run.from_ns), max(run.to_ns - 1, run.from_ns))
        cursor = ruler.column_at(at_ns)
        if self.span_ns is None:
            shown_to_ns = None
        elif ruler.from_ns <= cursor.from_ns and cursor.to_ns <= ruler.to_ns + 1:
            # The timeline stops moving below the cursor, so that it can be read.
            shown_to_ns = min(ruler.to_ns, run.to_ns) if self.end_ns is None else self.end_ns
        else:
            ahead = self.span_ns // 4
            wanted_ns = (
                cursor.from_ns + 3 * ahead
                if cursor.from_ns < ruler.from_ns
                else cursor.to_ns + ahead
            )
            shown_to_ns = _within(wanted_ns, self.span_ns, run)
        return replace(self, cursor=cursor, end_ns=shown_to_ns)

    def begun(self, ruler: Ruler, run: TimeRange) -> Scrub:
        """Let the range begin at the cursor, else at the newest column.

        An end before it is dropped.
        """
        if self.cursor is None:
            return self.moved(0, ruler, run).begun(ruler, run)
        from_ns, to_ns = self.cursor.from_ns, self.to_ns
        return replace(self, from_ns=from_ns, to_ns=to_ns if to_ns and to_ns > from_ns else None)

    def finished(self, ruler: Ruler, run: TimeRange) -> Scrub:
        """Let the range end with the column of the cursor, or the newest.

        A beginning after it is dropped.
        """
        if self.cursor is None:
            return self.moved(0, ruler, run).finished(ruler, run)
        from_ns, to_ns = self.from_ns, self.cursor.to_ns
        return replace(self, from_ns=from_ns if from_ns and from_ns < to_ns else None, to_ns=to_ns)

    def dragged(self, one_ns: int, other_ns: int, ruler: Ruler, run: TimeRange) -> Scrub:
        """Choose all columns between two times, in either order.

        The cursor goes to the second.
        """
        first, last = sorted((one_ns, other_ns))
        moved = self.at(other_ns, ruler, run)
        from_ns, to_ns = ruler.column_at(first).from_ns, ruler.column_at(last).to_ns
        return replace(moved, from_ns=from_ns, to_ns=to_ns)

    def zoomed(self, steps: int, ruler: Ruler, run: TimeRange) -> Scrub:
        """Show less time (``steps`` above 0) or more, around the cursor, range or run's end."""
        spans = [*(span_ns for span_ns in SPANS_NS if span_ns < run.length_ns), None]
        level = spans.index(self.span_ns if self.span_ns in spans else None)
        span_ns = spans[min(max(level - steps, 0), len(spans) - 1)]
        if span_ns is None or self.chosen is None:
            return replace(self, span_ns=span_ns, end_ns=None)
        chosen = shown_part(self.chosen, run)  # it goes to the middle of the timeline
        end_ns = _within((chosen.from_ns + chosen.to_ns + span_ns) // 2, span_ns, run)
        return replace(self, span_ns=span_ns, end_ns=end_ns)

    def released(self) -> Scrub:
        """Drop cursor and range, and go on with the run at the same zoom."""
        return Scrub(span_ns=self.span_ns)


def _within(end_ns: int, span_ns: int, run: TimeRange) -> int:
    return min(max(end_ns, run.from_ns + span_ns), run.to_ns)


class Mark(msgspec.Struct, frozen=True):
    """Something at a time, or over a time."""

    sign: Sign
    time: TimeRange
    text: str


def marks_of(events: Iterable[EventRow], windows: Iterable[WindowRow]) -> tuple[Mark, ...]:
    """Return the marks of a run, in order of time.

    The windows of all ranks of one request are one mark.
    """
    windows_of = {
        row.asked_ns: Mark(Sign.WINDOW, row.time, "window") for row in windows if not row.error
    }
    marks = [
        Mark(event.kind.sign, TimeRange(event.at_ns, event.at_ns + 1), event.text)
        for event in events
        if event.kind.sign is not None
    ]
    return tuple(sorted([*windows_of.values(), *marks], key=lambda mark: mark.time.from_ns))
