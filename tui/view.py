"""What the person has chosen to look at.

It is passed to the feed, and comes back inside every snapshot that answers it.
"""

from __future__ import annotations

import msgspec

from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.timerange import TimeRange
from profd.daemon.units import duration

_NEAR_SHARE = 0.1


def is_near(time: TimeRange, other: TimeRange) -> bool:
    """Say whether both ends of a range of time are near those of another.

    They are so near that estimates for the other range hold for this one.
    """
    most_ns = _NEAR_SHARE * other.length_ns
    return abs(time.from_ns - other.from_ns) <= most_ns and abs(time.to_ns - other.to_ns) <= most_ns


def shown_part(time: TimeRange, run: TimeRange) -> TimeRange:
    """Return the part of a range of time that lies in a run, at least a nanosecond of it."""
    from_ns = min(max(time.from_ns, run.from_ns), run.to_ns - 1)
    return TimeRange(from_ns, max(min(time.to_ns, run.to_ns), from_ns + 1))


class View(msgspec.Struct, frozen=True):
    """A choice of samples, and the available size for showing them.

    ``scope`` are main threads, workers, all threads, or those of a process. The timeline shows
    ``span_ns`` up to ``end_ns``. None stands for the whole run and for its end, which moves
    in a live run. The tables below it are about ``chosen``, which may end after the run does, or if
    that is None about all that the timeline shows. ``columns`` is the width of the timeline's
    strips in cells. ``startup`` asks for the user's lines in the startup instead of those in the
    loop. ``tab`` is the open view below: what only others show is not computed.
    """

    scope: Selection = MAIN_THREADS
    span_ns: int | None = None
    end_ns: int | None = None
    chosen: TimeRange | None = None
    columns: int = 60
    startup: bool = False
    tab: str = "lines"

    @property
    def is_everything(self) -> bool:
        return self.span_ns is None and self.chosen is None

    @property
    def name(self) -> str:
        if self.span_ns is None:
            return "whole run"
        return f"last {span_name(self.span_ns)}" if self.end_ns is None else span_name(self.span_ns)


class OutputView(msgspec.Struct, frozen=True):
    """The size of the script's own output; ``is_shown`` is False while another tab is open.

    While somebody types to the script, the feed looks for its echo more often.
    """

    columns: int = 0
    lines: int = 0
    is_shown: bool = False
    is_typing: bool = False


def span_name(length_ns: int) -> str:
    """Return a length of time without its zero parts: ``30 s``, ``2 min``, ``1 h``."""
    text = duration(length_ns / 1e9)
    return (
        text.replace(".0 s", " s")
        .removesuffix(" 00 s")
        .removesuffix(" 00 min")
        .removesuffix(" 00 h")
    )
