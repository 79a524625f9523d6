"""How long a recording lasts, and what a user gets who sets no options of recordings.

A recording is what one py-spy samples, from one hand-over of its samples to the next. All that
waits for a recording, or that bounds one, derives its time from here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from profd.daemon.clock import SECOND_NS


class RecordingConfig(NamedTuple):
    """The lengths of recordings, and the defaults and bounds of their options."""

    length_s: float = 4.5
    """A kill -9 loses this much, and the time to start, end and write a recording.

    That is less than 5 s in all. Starting one takes 15 to 20 ms of CPU time, most of it for reading
    the interpreter's symbols.
    """
    watched_length_s: float = 1.6
    """While somebody watches, recordings are short, so that they are seen soon."""
    longest_ns: int = 60 * SECOND_NS
    """No recording in a run file is longer, however slow the machine was.

    This bounds how far before a range of time the readers of the file have to look.
    """
    rate_hz: int = 100
    lowest_rate_hz: int = 3
    highest_rate_hz: int = 1000
    budget_percent: float = 10.0
    """The share of one core that all of profd but the dashboard may take."""
    hang_after_s: float = 30.0
    """Seconds without progress after which a run counts as hanging."""

    @property
    def whole_s(self) -> int:
        """The seconds that hold a recording."""
        return math.ceil(self.length_s)


RECORDING = RecordingConfig()
