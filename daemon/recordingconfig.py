"""How long a recording lasts, and what a user gets who sets no options of recordings.

A recording is what one py-spy samples, from one hand-over of its samples to the next. All that
waits for a recording, or that bounds one, derives its time from here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from profd.daemon.clock import SECOND_NS


class RecordingConfig(NamedTuple):
    """The lengths of recordings, the bounds of their rates, and what counts as an idle GPU."""

    length_s: float = 4.5
    """A kill -9 loses this much, and the time to start, end and write a recording.

    That is less than 5 s in all. Starting one takes 15 to 20 ms of CPU time, most of it for reading
    the interpreter's symbols.
    """
    steady_length_s: float = 15.0
    """At the steady rate a start costs as much as 4 s of samples, so there are a third as many."""
    full_rate_hz: int = 100
    """The rate of a run of which something is not known yet, unless the user sets another."""
    steady_rate_hz: int = 20
    """The rate while all is as before: any share of a minute is known to 4 points then."""
    watched_length_s: float = 1.6
    """While somebody watches, recordings are short, so that they are seen soon."""
    longest_ns: int = 60 * SECOND_NS
    """No recording in a run file is longer, however slow the machine was.

    This bounds how far before a range of time the readers of the file have to look.
    """
    lowest_rate_hz: int = 3
    highest_rate_hz: int = 1000
    idle_below: float = 0.05
    """A GPU is idle if a kernel ran for less than this share of a period.

    Run files have sums over such periods.
    """

    @property
    def whole_s(self) -> int:
        """The seconds that hold a recording, at whatever rate."""
        return math.ceil(self.steady_length_s)

    def length_at(self, rate_hz: float) -> float:
        """Return the length of recordings in seconds, at a rate of the main processes."""
        return self.steady_length_s if rate_hz <= self.steady_rate_hz else self.length_s


RECORDING = RecordingConfig()


class RecordingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may set, with the defaults."""

    rate_hz: int | None = None
    """Samples a second of the main processes of ranks; None means as many as are needed."""
    budget_percent: float = 10.0
    """The share of one core that all of profd but the dashboard may take."""
    duration_s: float | None = None
    subprocesses: bool = True
    steps: bool = True
    source: bool = True
    """Whether lines of source are kept, with secrets masked."""
    all_gpus: bool = False
    hang_after_s: float | None = 30.0
    """Seconds without progress after which the run counts as hanging; None means never."""
    on_hang: str | None = None
    """A shell command to run when the run hangs."""
    nccl_ras: str = "hang"
    """When to ask NCCL's RAS: never (off), or in a hang."""
