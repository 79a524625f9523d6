"""The diary of a program that steps: a line a step, ``time_ns steps``. Its path is the program's only argument."""

import sys
import time

_FILE = open(sys.argv[1], "w", buffering=1)  # noqa: SIM115, PTH123
_steps = 0


def begin() -> None:
    print("ready", flush=True)


def stepped() -> None:
    global _steps
    _steps += 1
    _FILE.write(f"{time.time_ns()} {_steps}\n")


def work(seconds: float) -> None:
    """Compute for a twentieth of the time and wait for the rest: several of these programs share a core."""
    end = time.monotonic() + seconds
    while time.monotonic() < end - 0.95 * seconds:
        pass
    time.sleep(max(end - time.monotonic(), 0))
