"""Reads when windows are to be taken by themselves: ``every=10m,steps=5``, ``finding``, or both."""

from __future__ import annotations

import re

import msgspec

from profd.daemon.errors import UsageError
from profd.daemon.windows.request import MAX_SECONDS, MAX_STEPS, WindowRequest

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_EXAMPLE = "write it like every=10m,steps=5 or finding,seconds=0.5"
_FINDING = "finding"
SHORTEST_S = 10.0
"""Windows that come closer would be most of what the run does."""


class Schedule(msgspec.Struct, frozen=True):
    """A window as requested every so many seconds (None: never), and once of each kind of finding where wanted."""

    every_s: float | None
    request: WindowRequest
    on_finding: bool = False


def parse_schedule(text: str) -> Schedule:
    """Return the schedule that a text says; raises UsageError."""
    words = text.split(",")
    on_finding = _FINDING in words
    pairs = [word.partition("=") for word in words if word != _FINDING]
    settings = {name: value for name, _, value in pairs}
    if (
        len(settings) + on_finding != len(words)
        or not settings.keys() <= {"every", "steps", "seconds"}
        or not (on_finding or "every" in settings)
    ):
        raise UsageError(f"{text} is no schedule of windows", f"{_EXAMPLE}; put -- before a command")
    every_s = _every_s(settings["every"]) if "every" in settings else None
    return Schedule(every_s, _request(settings), on_finding)


def _every_s(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None or (every_s := float(match[1]) * _UNITS_S[match[2]]) < SHORTEST_S:
        raise UsageError(f"every={text} is no time of {SHORTEST_S:.0f} s or more", _EXAMPLE)
    return every_s


def _request(settings: dict[str, str]) -> WindowRequest:
    if "steps" in settings and "seconds" in settings:
        raise UsageError("a window has steps or seconds, not both", _EXAMPLE)
    given = {name: settings[name] for name in ("steps", "seconds") if name in settings}
    try:
        return msgspec.convert(given, WindowRequest, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"no window has that length ({error})", f"give 1 to {MAX_STEPS} steps, or up to {MAX_SECONDS} seconds"
        ) from error
