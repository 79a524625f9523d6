"""Times and counts as the dashboard writes them; shares and sizes are written as everywhere, see ``daemon.units``."""

from __future__ import annotations

from datetime import datetime

from profd.daemon.clock import SECOND_NS
from profd.daemon.units import UNKNOWN


def plural(number: int, noun: str) -> str:
    """Return ``1 worker``, ``2 workers``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(length_ns: int) -> str:
    """Return a length of time as ``00:12:41``, with days before it where there are any."""
    seconds = max(length_ns, 0) // SECOND_NS
    days, seconds = divmod(seconds, 86_400)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{days} d {clock}" if days else clock


def clock(at_ns: int, form: str = "%H:%M:%S") -> str:
    """Return a moment as people's clocks showed it; or that it is not known."""
    try:
        return datetime.fromtimestamp(at_ns / SECOND_NS).strftime(form)
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def time_range(from_ns: int, to_ns: int) -> tuple[str, str]:
    """Return two moments as people's clocks showed them, with tenths of a second where they lie close together."""
    tenths = (to_ns - from_ns) % SECOND_NS != 0 and to_ns - from_ns < 10 * SECOND_NS
    first, last = (
        f"{clock(at_ns)}.{at_ns % SECOND_NS * 10 // SECOND_NS}" if tenths else clock(at_ns)
        for at_ns in (from_ns, to_ns)
    )
    return first, last
