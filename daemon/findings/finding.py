"""A finding as it is shown everywhere: its evidence, its severity and its words."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.store.records import Count, Time, Value
from profd.daemon.units import times

INFO, WARNING, CRITICAL = "info", "warning", "critical"
SEVERITIES = (INFO, WARNING, CRITICAL)

Severity = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(SEVERITIES)})\Z")]
RowNumber = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""What a column of the run file can hold: findings are read from there, and the file may be hostile."""


class Measure(msgspec.Struct, frozen=True):
    """A number that a finding rests on: ``unit`` is share (0 to 1), cores, bytes, bytes/s, times, … or empty.

    ``low`` and ``high`` are its 95 % interval and ``samples`` what it was counted from, None where it was not sampled.
    """

    name: str
    value: Value
    unit: str = "share"
    low: Value | None = None
    high: Value | None = None
    samples: Count | None = None


class Line(msgspec.Struct, frozen=True):
    """A line of the user's code: ``file`` as frames have it, ``module_path`` short, ``frame`` the id of its row."""

    file: str
    module_path: str
    line: RowNumber
    source: str | None
    function: str
    frame: RowNumber


class Evidence(msgspec.Struct, frozen=True):
    """What proves a finding: numbers, the range of time, the user's line, and the samples to look at.

    ``selection`` selects the stacks: the shares in ``measures`` are those that summary and export give for it, and
    ``selection.phase`` the phase in question. ``series`` names the series that were read.
    """

    measures: tuple[Measure, ...]
    from_ns: Time
    to_ns: Time
    selection: Selection
    line: Line | None = None
    series: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True):
    """Something to change.

    ``title`` is one sentence with its number, after which nothing needs to be read; it begins with ``label``, its kind
    in a word or two (``input-bound: …``). ``gain_bound`` is by how many times steps can get faster at most, None where
    the fix makes none faster or the gain is unknown. ``page`` is the anchor in docs/findings.md.
    """

    rule: str
    severity: Severity
    label: str
    title: str
    cause: str
    remedy: str
    gain_bound: Value | None
    evidence: Evidence
    page: str

    @property
    def sentence(self) -> str:
        return self.title.removeprefix(f"{self.label}: ")


class Scale(msgspec.Struct, frozen=True):
    """The shares of time from which on a loss is of each severity."""

    info: float = 0.05
    warning: float = 0.10
    critical: float = 1 / 3


LOSS = Scale()
"""For what a training should not do at all: without a third of its time it is half as fast again."""
PRICE = Scale(info=0.10, warning=0.25, critical=0.5)
"""For what belongs to a training, but in measure."""


def at(line: Line | None) -> str:
    """Return the place of a line in brackets with a space ahead; nothing where there is none."""
    return f" ({place(line)})" if line else ""


def place(line: Line) -> str:
    """Return the place of a line. The name of its file is enough to read on; the evidence has the whole path."""
    return f"{PurePath(line.module_path).name}:{line.line}"


def speeds_up(gain: float | None) -> str:
    """Return what a fix does, as the end of a sentence about it; the bound of its gain is None where it is unknown."""
    return f"speeds steps up by at most {times(gain)}" if gain is not None else f"helps ({GAIN_UNKNOWN})"


GAIN_UNKNOWN = "gain unknown: the CPU is oversubscribed"
