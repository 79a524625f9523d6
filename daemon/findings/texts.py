"""What findings say, and from which shares of the time on.

The table ``texts.toml`` has both and explains its fields. This module also has the words that all
texts may name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path, PurePath

import msgspec

from profd.daemon.findings.finding import SEVERITIES, Line
from profd.daemon.units import LARGEST_BOUND, times

TABLE = Path(__file__).with_name("texts.toml")
_NEAR = 0.8
SAID = ("title", "cause", "remedy", "measure")
"""The texts of a finding that may name words."""


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From which share of the time, or of what there is, a loss has each severity; some never."""

    info: float = math.inf
    warning: float = math.inf
    critical: float = math.inf


class Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one kind of finding says, a [finding.NAME] of the table."""

    label: str
    title: str
    cause: str
    remedy: str
    rule: str = ""
    measure: str = ""
    phase: str | None = None
    series: tuple[str, ...] = ()
    scale: str = "loss"
    is_symptom: bool = False
    is_bound: bool = True
    is_indirect: bool = True
    beside_gpu: bool = True
    kernels: str = ""
    words: dict[str, str] = {}
    case: dict[str, dict[str, str]] = {}

    def said(self, given: Mapping[str, object], cases: Mapping[str, bool]) -> dict[str, str]:
        """Return title, cause, remedy and measure, with the words that a rule gives.

        Each case in ``cases`` that holds brings its own texts.
        """
        texts = {
            "title": self.title,
            "cause": self.cause,
            "remedy": self.remedy,
            "measure": self.measure or self.phase,
        }
        texts |= self.words
        for case, holds in cases.items():
            texts |= self.case[case] if holds else {}
        own = {
            name: (text or "").format(**given) for name, text in texts.items() if name not in SAID
        }
        return {name: (texts[name] or "").format(**{**given, **own}) for name in SAID}


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scale: dict[str, Scale]
    finding: dict[str, Texts]

    def severity(self, name: str, share: float) -> str | None:
        """Return how grave the finding ``name`` is at a share.

        Return None if the share is too small to mention.
        """
        scale = self.scale[self.finding[name].scale]
        return next((one for one in reversed(SEVERITIES) if share >= getattr(scale, one)), None)


@functools.cache
def table() -> _Table:
    """Return the table, which is read when a rule first asks for it."""
    return msgspec.toml.decode(TABLE.read_bytes(), type=_Table)


def at(line: Line | None, call: Line | None = None, called: str = "") -> str:
    """Return the place of a line in brackets after a space, or nothing without a line.

    With what it calls in a library, and with the line in the user's loop that leads to it.
    """
    if line is None:
        return ""
    calls = f", from {place(call)}" if call and place(call) != place(line) else ""
    return f" ({place(line)}{called and f', in {called}'}{calls})"


def place(line: Line) -> str:
    """Return the place of a line by the name of its file; the evidence has the whole path."""
    return f"{PurePath(line.module_path).name}:{line.line}"


def speeds_up(
    gain: float | None, least: float | None = None, *, is_crowded: bool = False, trains: bool = True
) -> str:
    """Return what a fix does, as the end of a sentence about it.

    The bound ``gain`` is None if it is unknown. ``least`` is said too if it is near. A program that
    does not train may have no steps.
    """
    if gain is None:
        return "helps (by how much is unknown)"
    if gain > LARGEST_BOUND:
        return f"saves nearly all of the {'step' if trains else 'time'}"
    what, crowded = "steps" if trains else "the program", " on crowded cores" if is_crowded else ""
    if least and least >= max(_NEAR * gain, 1.1):
        low, high = f"{least:.1f}", times(gain)
        return f"speeds {what} up by {'about' if high.startswith(low) else f'{low} to'} {high}"
    return f"speeds {what} up by at most {times(gain)}{crowded}"
