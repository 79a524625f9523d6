"""Words that all findings share: places, numbers, names."""

from __future__ import annotations

from pathlib import PurePath

from profd.daemon.analyze.findings.finding import Line


def at(line: Line | None) -> str:
    """Return the place of a line in brackets with a space ahead; nothing where there is none."""
    return f" ({place(line)})" if line else ""


def place(line: Line) -> str:
    """Return the place of a line. The name of its file is enough to read on; the evidence has the whole path."""
    return f"{PurePath(line.module_path).name}:{line.line}"


def percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{100 * share:.0f} %"


def times(gain: float) -> str:
    """Return how many times faster something gets."""
    return f"{gain:.1f}\N{MULTIPLICATION SIGN}" if gain >= 1.095 else f"{gain:.2f}\N{MULTIPLICATION SIGN}"


def at_most(gain: float | None) -> str:
    """Return what a fix brings: its bound, or that none can be told."""
    return f"at most {times(gain)}" if gain is not None else "a gain that cannot be told while the cores are crowded"


def many(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float) -> str:
    """Return about how long something takes."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.0f} h"


def size(count: float) -> str:
    """Return a number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
