"""The request for a torch.profiler window, and the schedule of automatic windows.

Here is also the error that is raised if no window was taken.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec

from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.errors import ProfdError, UsageError

DEFAULT_STEPS = 5
MAX_STEPS = 1000
MAX_SECONDS = 600
WARMUP_S = 1
"""How long Kineto records before a window of seconds, and throws away."""


# Those of torch.profiler: by itself Kineto also records synchronizations and events, which cost
# time and are no work. Kineto reads no further than a name it does not know, so cuda_driver comes
# last, which torch 2.0 has not.
_ACTIVITIES = (
    "cpu_op",
    "user_annotation",
    "gpu_user_annotation",
    "gpu_memcpy",
    "gpu_memset",
    "kernel",
    "external_correlation",
    "cuda_runtime",
    "cpu_instant_event",
    "python_function",
    "overhead",
    "cuda_driver",
)


class WindowRequest(msgspec.Struct, frozen=True):
    """A window of ``steps`` optimizer steps, or of ``seconds`` if that is given.

    Shapes cost little; memory costs more; stacks make every call of Python an event. ``inject``
    allows profd to start the profiler inside a process that was not armed for windows; ``pid`` is
    the one process to ask, None for all that train.
    """

    steps: Annotated[int, msgspec.Meta(ge=1, le=MAX_STEPS)] = DEFAULT_STEPS
    seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)] | None = None
    shapes: bool = True
    memory: bool = False
    stacks: bool = False
    inject: bool = False
    pid: int | None = None

    def configuration(self, trace: Path, start_ns: int = 0) -> str:
        """Return the text that asks Kineto for this window.

        Kineto puts ``_<pid>`` before the suffix of ``trace``. A window of seconds begins at
        ``start_ns``, nanoseconds since the epoch; with 0 whenever Kineto likes.
        """
        settings: dict[str, object] = {"ACTIVITIES_LOG_FILE": trace}
        if self.seconds is not None:
            length_ms = max(1, round(self.seconds * 1000))
            settings |= {
                "ACTIVITIES_DURATION_MSECS": length_ms,
                "ACTIVITIES_WARMUP_PERIOD_SECS": WARMUP_S,
            }
            if start_ns:
                settings |= {"PROFILE_START_TIME": start_ns // MILLISECOND_NS}
        else:
            settings |= {"PROFILE_START_ITERATION": 0, "PROFILE_START_ITERATION_ROUNDUP": 1}
            settings |= {"ACTIVITIES_ITERATIONS": self.steps, "ACTIVITIES_WARMUP_ITERATIONS": 1}
        switches = {
            "PROFILE_REPORT_INPUT_SHAPES": self.shapes,
            "PROFILE_PROFILE_MEMORY": self.memory,
        }
        switches["PROFILE_WITH_STACK"] = self.stacks
        settings |= {name: "true" if is_on else "false" for name, is_on in switches.items()}
        settings["ACTIVITY_TYPES"] = ",".join(_ACTIVITIES)
        return "".join(f"{name}={value}\n" for name, value in settings.items())


_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_EXAMPLE = "write it like every=10m,steps=5 or finding,seconds=0.5"
_FINDING = "finding"
SHORTEST_S = 10.0
"""More frequent windows would take most of the run's time."""


class Schedule(msgspec.Struct, frozen=True):
    """A window as requested every ``every_s`` seconds (None: never).

    There is also one for each kind of finding, once, if that is wanted.
    """

    every_s: float | None
    request: WindowRequest
    on_finding: bool = False


def parse_schedule(text: str) -> Schedule:
    """Return the schedule in a text; raises UsageError."""
    words = text.split(",")
    on_finding = _FINDING in words
    settings = {
        name: value
        for name, _, value in (word.partition("=") for word in words if word != _FINDING)
    }
    is_known = len(settings) + on_finding == len(words) and settings.keys() <= {
        "every",
        "steps",
        "seconds",
    }
    if not is_known or not (on_finding or "every" in settings):
        raise UsageError(
            f"{text} is no schedule of windows", f"{_EXAMPLE}; put -- before a command"
        )
    every = settings.pop("every", None)
    every_s = None
    if every is not None:
        match = _DURATION.fullmatch(every)
        every_s = float(match[1]) * _UNITS_S[match[2]] if match else 0.0
        if every_s < SHORTEST_S:
            raise UsageError(f"every={every} is no time of {SHORTEST_S:.0f} s or more", _EXAMPLE)
    if len(settings) > 1:
        raise UsageError("a window has steps or seconds, not both", _EXAMPLE)
    try:
        return Schedule(every_s, msgspec.convert(settings, WindowRequest, strict=False), on_finding)
    except msgspec.ValidationError as error:
        remedy = f"give 1 to {MAX_STEPS} steps, or up to {MAX_SECONDS} seconds"
        raise UsageError(f"no window has that length ({error})", remedy) from error


class WindowFailed(ProfdError):
    """A process was asked for a window and gave none."""
