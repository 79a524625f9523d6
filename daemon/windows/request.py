"""What a torch.profiler window is to be, when windows are taken automatically, and the error where none was taken."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec

from profd.daemon.errors import ProfdError, UsageError

DEFAULT_STEPS = 5
MAX_STEPS = 1000
MAX_SECONDS = 600


class WindowRequest(msgspec.Struct, frozen=True):
    """A window of ``steps`` optimizer steps, or of ``seconds`` where that is given.

    Shapes cost little; memory costs more; stacks make every call of Python an event. FLOPs are read off the shapes.
    ``inject`` allows to start the profiler inside of a process that was not armed for windows; ``pid`` is the one
    process that is asked, None for all that train.
    """

    steps: Annotated[int, msgspec.Meta(ge=1, le=MAX_STEPS)] = DEFAULT_STEPS
    seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)] | None = None
    shapes: bool = True
    memory: bool = False
    stacks: bool = False
    flops: bool = True
    inject: bool = False
    pid: int | None = None

    def configuration(self, trace: Path) -> str:
        """Return the text that asks Kineto for this window; it puts ``_<pid>`` before the suffix of ``trace``."""
        settings = {
            "ACTIVITIES_LOG_FILE": trace,
            **self._length(),
            "PROFILE_REPORT_INPUT_SHAPES": _word(self.shapes or self.flops),
            "PROFILE_PROFILE_MEMORY": _word(self.memory),
            "PROFILE_WITH_STACK": _word(self.stacks),
            "PROFILE_WITH_FLOPS": _word(self.flops),
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _length(self) -> dict[str, object]:
        if self.seconds is not None:
            return {"ACTIVITIES_DURATION_MSECS": max(1, round(self.seconds * 1000)), "ACTIVITIES_WARMUP_PERIOD_SECS": 0}
        return {
            "PROFILE_START_ITERATION": 0,
            "PROFILE_START_ITERATION_ROUNDUP": 1,
            "ACTIVITIES_ITERATIONS": self.steps,
            "ACTIVITIES_WARMUP_ITERATIONS": 0,
        }


def _word(switch: bool) -> str:
    return "true" if switch else "false"


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


class WindowFailed(ProfdError):
    """A process was asked for a window and gave none."""
