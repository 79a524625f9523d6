"""The diary of a program that steps: lines of ``time_ns steps batches number``. Its path is the only argument.

``steps`` is how many the program has made since its start, ``batches`` of how many batches: as many, but where
gradients are accumulated; there a line is written after each batch, too. ``number`` is what the script itself calls the
step that has just ended, as it stands in its variable; ``-`` where it keeps none. The diary of a program that trains
nothing stays empty. It is written at once, where steps are 20 ms apart and more, and complete at SIGTERM.

What imports this can import torch: that of PYTHONPATH, else the stand-in beside.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time

_AT_ONCE_NS = 20_000_000
_STANDIN = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "torchlike")  # noqa: PTH118, PTH120

if "torch" not in sys.modules and not any(
    os.path.exists(os.path.join(folder, "torch", "standin.py"))  # noqa: PTH110, PTH118
    for folder in sys.path
):
    sys.path.insert(1, _STANDIN)

_FILE = open(sys.argv[1], "w")  # noqa: SIM115, PTH123
_written_ns = 0
_steps = 0
_batches = 0
_number = "-"


def begin() -> None:
    """Say that the training begins."""
    print("ready", flush=True)


def stepped(number: int | None = None) -> None:
    """Note that a step has ended, which the script gives this number."""
    global _steps, _batches, _number
    _steps += 1
    _batches = max(_batches, _steps)
    _number = "-" if number is None else str(number)
    _write()


def batched() -> None:
    """Note that a batch has ended, several of which make a step."""
    global _batches
    _batches += 1
    _write()


def work(seconds: float) -> None:
    """Compute for a twentieth of the time and wait for the rest: several of these programs share a core."""
    end = time.monotonic() + seconds
    while time.monotonic() < end - 0.95 * seconds:
        pass
    time.sleep(max(end - time.monotonic(), 0))


def _write() -> None:
    global _written_ns
    now_ns = time.time_ns()
    _FILE.write(f"{now_ns} {_steps} {_batches} {_number}\n")
    if now_ns - _written_ns > _AT_ONCE_NS:
        _FILE.flush()
        _written_ns = now_ns


atexit.register(_FILE.flush)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
