"""Numbers with their units, lengths of time and moments, as every text of profd writes them.

``page/text.js`` repeats the rules for values that the report computes itself;
``tests/data/units.json`` checks both.
"""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal

from profd.daemon.clock import SECOND_NS

UNKNOWN = "-"
# Sums of floats may fall short of 1 by this much.
_ROUNDING = 1e-9


def number(value: float) -> str:
    """Return a number with three figures or more: ``0.0417``, ``32.1``, ``12,255``."""
    return f"{value:,.0f}" if abs(value) >= 99.95 or not value else f"{Decimal(f'{value:.2e}'):f}"


def about(value: float) -> str:
    """Return a number with two figures, as of an estimate: ``3.8``, ``40``, ``1,200``."""
    return f"{Decimal(f'{value:.1e}'):,f}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 job``, ``1,200 jobs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


LARGEST_BOUND = 10.0
"""Beyond it a bound on a gain says only that nearly all of a step can be saved."""


def times(factor: float) -> str:
    """Return by how many times something is faster: ``1.3×``, ``1.04×``."""  # noqa: RUF002
    return f"{factor:.{1 if factor >= 1.095 else 2}f}\N{MULTIPLICATION SIGN}"


def percent(share: float | None, decimals: int = 0) -> str:
    """Return a share of 0 to 1 as per cent: ``61 %``.

    ``100 %`` stands only for all, ``0 %`` only for none.
    """
    if share is None:
        return UNKNOWN
    least = 10.0**-decimals
    shown = round(100 * share, decimals)
    if shown == 0 < share:
        return f"<{least:.{decimals}f} %"
    if share < 1 - _ROUNDING and shown >= 100:
        shown = 100 - least
    return f"{shown:.{decimals}f} %"


def rounded_percent(share: float, around: float) -> str:
    """Return a share rounded to what its interval ``around`` allows: 37 ± 6 % is ``35 %``."""
    step = max((one for one in (0.05, 0.1) if around >= one), default=0.01)
    rounded = round(share / step, 0) * step
    return percent(rounded if 0 < rounded < 1 else share)


def signed_percent(share: float) -> str:
    """Return by what part something grew or shrank: ``+3.1 %``, ``-12.0 %``."""
    return f"{'+' if share >= 0 else '-'}{percent(abs(share), 1)}"


def rate(per_s: float) -> str:
    """Return a rate: ``20.1/s``, ``0.0341/s``, ``1,530/s``."""
    return f"{number(per_s)}/s"


def size(count: float | None) -> str:
    """Return a number of bytes: ``812 kB``, ``1.3 GB``."""
    if count is None:
        return UNKNOWN
    if abs(count) < 999.5:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if abs(count) < 999.5:
            return f"{count:.1f} {unit}" if abs(count) < 9.95 else f"{count:.0f} {unit}"
    return f"{count / 1000:.1f} TB"


def quantity(value: float, unit: str) -> str:
    """Return a measured value in its unit.

    The unit is ``share`` (of 1), ``bytes``, ``bytes/s``, ``s/step``, or a word.
    """
    if unit == "share":
        return percent(value, 1)
    if unit == "s/step":
        return step_time(value)
    if unit.startswith("bytes"):
        return size(value) + unit.removeprefix("bytes")
    shown = f"{int(value):,}" if float(value).is_integer() else number(value)
    return f"{shown} {unit}".rstrip()


def difference(value: float, unit: str) -> str:
    """Return a difference of measured values with its sign: ``-40.0 ms``.

    A difference of shares is in points: ``+1.2 pts``.
    """
    sign, amount = "-" if value < 0 else "+", abs(value)
    return f"{sign}{100 * amount:.1f} pts" if unit == "share" else f"{sign}{quantity(amount, unit)}"


def duration(seconds: float) -> str:
    """Return a length of time: ``12.3 s``, ``2 min 04 s``, ``3 h 07 min``, ``2 d 05 h``."""
    if not 59.95 <= seconds < math.inf:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, rest_min = divmod(round(seconds / 60), 60)
    if hours < 24:
        return f"{hours} h {rest_min:02d} min"
    days, rest_h = divmod(round(seconds / 3600), 24)
    return f"{days} d {rest_h:02d} h"


def step_time(seconds: float) -> str:
    """Return the time of a step, or one as short: ``41.3 µs``, ``251 ms``, ``1.32 s``."""
    if seconds >= 59.95:
        return duration(seconds)
    if seconds >= 0.9995:
        return f"{number(seconds)} s"
    if seconds >= 0.9995e-3 or not seconds:
        return f"{number(1e3 * seconds)} ms"
    return f"{number(1e6 * seconds)} µs"


def elapsed(length_ns: int) -> str:
    """Return a length of time like a running clock: ``00:12:41``.

    Days come before it if there are any.
    """
    seconds = round(max(length_ns, 0) / SECOND_NS)
    days, seconds = divmod(seconds, 86_400)
    shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{days} d {shown}" if days else shown


def moment(at_ns: int) -> str:
    """Return a moment in the time zone of the reader: ``2026-11-20 12:00:00 UTC``."""
    return clock(at_ns, "%Y-%m-%d %H:%M:%S %Z")


def clock(at_ns: int, form: str = "%H:%M:%S") -> str:
    """Return a moment as a clock in the reader's time zone showed it.

    ``-`` if no clock can show it.
    """
    try:
        return datetime.fromtimestamp(at_ns / SECOND_NS).astimezone().strftime(form)
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def time_range(from_ns: int, to_ns: int) -> tuple[str, str]:
    """Return two moments as clocks showed them.

    They have tenths of a second if they lie close together.
    """
    tenths = (to_ns - from_ns) % SECOND_NS != 0 and to_ns - from_ns < 10 * SECOND_NS
    if not tenths:
        return clock(from_ns), clock(to_ns)
    first, last = (
        f"{clock(at_ns)}.{at_ns % SECOND_NS * 10 // SECOND_NS}" for at_ns in (from_ns, to_ns)
    )
    return first, last
