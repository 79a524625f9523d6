"""Numbers with their units, as every text of profd writes them."""

from __future__ import annotations

UNKNOWN = "-"


def percent(share: float | None, decimals: int = 0) -> str:
    """Return a share of 0 to 1 as per cent: ``61 %``; never ``100 %`` of what is not all, nor ``0 %`` of something."""
    if share is None:
        return UNKNOWN
    least = 10.0**-decimals
    shown = round(100 * share, decimals)
    if shown == 0 < share:
        return f"<{least:.{decimals}f} %"
    if share < 1 <= shown / 100:
        shown = 100 - least
    return f"{shown:.{decimals}f} %"


def duration(seconds: float) -> str:
    """Return a length of time: ``12.3 s``, ``2 min 04 s``, ``3 h 07 min``, ``2 d 05 h``."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, rest_min = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {rest_min:02d} min"
    days, rest_h = divmod(hours, 24)
    return f"{days} d {rest_h:02d} h"


def rate(per_s: float) -> str:
    """Return a rate: ``20.1/s``, ``0.0341/s``, ``1,530/s``."""
    return f"{per_s:,.0f}/s" if per_s >= 99.95 else f"{per_s:#.3g}/s"


def size(count: float | None) -> str:
    """Return a number of bytes: ``812 kB``, ``1.3 GB``."""
    if count is None:
        return UNKNOWN
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.5:
            return f"{count:.1f} {unit}" if count < 9.95 else f"{count:.0f} {unit}"
    return f"{count / 1000:.1f} TB"
