"""A finding as it is shown everywhere: its evidence, its severity and its words."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from profd.daemon.analyze.selection import Selection
from profd.daemon.store.records import Count, Time, Value
from profd.daemon.units import LARGEST_BOUND, plural, quantity, times

INFO, WARNING, CRITICAL = "info", "warning", "critical"
SEVERITIES = (INFO, WARNING, CRITICAL)
LEAST_SAMPLES = 100
"""Fewer samples show neither a loss nor that there is none."""

_NEAR = 0.2
"""A number that differs by this part calls for nothing else to be done."""
_NUMBER = re.compile(r"\d[\d.,-]*")

Severity = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(SEVERITIES)})\Z")]
RowNumber = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""What a column of the run file can hold: findings are read from a file that may be hostile."""


class Measure(msgspec.Struct, frozen=True):
    """A number that a finding rests on.

    ``unit`` is share (0 to 1), cores, bytes, bytes/s, times, … or empty. ``low`` and ``high`` are
    its 95 % interval, ``samples`` the number of samples it rests on; None if it was not sampled.
    """

    name: str
    value: Value
    unit: str = "share"
    low: Value | None = None
    high: Value | None = None
    samples: Count | None = None

    @property
    def shown(self) -> str:
        return quantity(self.value, self.unit)

    def agrees(self, told: Measure) -> bool:
        """Say whether this is nothing new beside the value that was told.

        It may be the same value, as its interval overlaps; or it differs by less than a fifth, as
        it does from minute to minute in a steady run. It is new if it is twice as sure.
        """
        is_near = abs(self.value - told.value) <= _NEAR * abs(told.value)
        if self.low is None or self.high is None or told.low is None or told.high is None:
            return is_near
        is_surer = 2 * (self.high - self.low) < told.high - told.low
        return (is_near or (self.low <= told.high and told.low <= self.high)) and not is_surer

    @property
    def basis(self) -> list[str]:
        """What the number rests on, in words: its interval and its samples, as far as known."""
        found = []
        if self.low is not None and self.high is not None:
            found.append(f"{quantity(self.low, self.unit)} to {quantity(self.high, self.unit)}")
        if self.samples is not None:
            found.append(plural(self.samples, "sample"))
        return found


class Line(msgspec.Struct, frozen=True):
    """A line of the user's code.

    ``file`` is as frames have it, ``module_path`` is short, and ``frame`` is the id of its row.
    """

    file: str
    module_path: str
    line: RowNumber
    source: str | None
    function: str
    frame: RowNumber


class Evidence(msgspec.Struct, frozen=True):
    """What proves a finding: numbers, range of time, user's line, and samples to look at.

    ``selection`` selects the stacks: summary and export give the same shares for it as
    ``measures``, and ``selection.phase`` is the phase in question. ``series`` names the series that
    were read. ``call`` is the line of the user's loop that makes the call with the cause in it.
    """

    measures: tuple[Measure, ...]
    from_ns: Time
    to_ns: Time
    selection: Selection
    line: Line | None = None
    series: tuple[str, ...] = ()
    call: Line | None = None


class Finding(msgspec.Struct, frozen=True):
    """Something to change.

    ``title`` is one sentence with its number that says enough alone; it begins with ``label``, its
    kind in a word or two (``input-bound: …``). ``gain_bound`` is how many times faster steps can
    get at most, None if the fix makes none faster or the gain is unknown. ``page`` is the anchor in
    docs/findings.md.
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

    def repeats(self, told: Finding) -> bool:
        """Say whether this is the same advice, and no graver than what was told."""
        return self._advice == told._advice and SEVERITIES.index(self.severity) <= SEVERITIES.index(
            told.severity
        )

    @property
    def _advice(self) -> str:
        """What is said of the cause and of what to do, whatever the numbers in it."""
        return _NUMBER.sub("", f"{self.rule} {self.label}: {self.cause} {self.remedy}")

    @property
    def at_most(self) -> str:
        """The bound on the gain in words; empty without one, or if it says nearly all."""
        bound = self.gain_bound
        return "" if bound is None or bound > LARGEST_BOUND else times(bound)

    @property
    def measured(self) -> float:
        """The first number of its evidence, which decided on it: mostly a share of the time."""
        return self.evidence.measures[0].value

    @property
    def sentence(self) -> str:
        return self.title.removeprefix(f"{self.label}: ")
