"""Words that all findings share: places, numbers, names."""

from __future__ import annotations

from profd.daemon.analyze.findings.finding import Line


def at(line: Line | None) -> str:
    """Return the place of a line in brackets with a space ahead; nothing where there is none."""
    return f" ({line.module_path}:{line.line})" if line else ""


def percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{100 * share:.0f} %"


def times(gain: float) -> str:
    """Return how many times faster something gets."""
    return f"{gain:.1f}\N{MULTIPLICATION SIGN}" if gain >= 1.095 else f"{gain:.2f}\N{MULTIPLICATION SIGN}"


def many(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
