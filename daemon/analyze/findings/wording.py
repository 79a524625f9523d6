"""Words that all findings share: places, and what a fix brings."""

from __future__ import annotations

from pathlib import PurePath

from profd.daemon.analyze.findings.finding import Line
from profd.daemon.units import times


def at(line: Line | None) -> str:
    """Return the place of a line in brackets with a space ahead; nothing where there is none."""
    return f" ({place(line)})" if line else ""


def place(line: Line) -> str:
    """Return the place of a line. The name of its file is enough to read on; the evidence has the whole path."""
    return f"{PurePath(line.module_path).name}:{line.line}"


def at_most(gain: float | None) -> str:
    """Return what a fix brings: its bound, or that none can be told."""
    return f"at most {times(gain)}" if gain is not None else "a gain that cannot be told while the cores are crowded"
