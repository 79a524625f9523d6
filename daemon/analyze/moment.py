"""Moments of a run as people write them: seconds from its start, or the time on their clock."""

from __future__ import annotations

from datetime import datetime, timedelta

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import UsageError
from profd.daemon.store.rows import RunInfo

_CLOCK_FORMATS = ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M")


def parse_time(word: str, info: RunInfo) -> int:
    """Return the moment that a word means in a run, in nanoseconds of its clock.

    A number is seconds from the start. ``HH:MM:SS`` is local time: its first occurrence after the start of the run, or
    before it where the run did not last until then. Raises UsageError for anything else.
    """
    try:
        return info.started_ns + int(float(word) * SECOND_NS)
    except (ValueError, OverflowError):
        return _clock_time(word, info)


def _clock_time(word: str, info: RunInfo) -> int:
    """Return the moment of a time of day within a run."""
    started = datetime.fromtimestamp(info.started_ns / SECOND_NS)
    for layout in _CLOCK_FORMATS:
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
