"""What a window is to be: how long, and what is recorded in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

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
