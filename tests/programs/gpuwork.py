"""A training loop whose GPU is the fake driver's: it says there when the GPU is busy, and plants idle gaps.

Each step keeps the GPU busy for a while in ``compute`` and leaves it idle for as long in ``load``; both spin, as the
main thread of a training does that waits for its GPU. It ends after the step in which it gets a line of input.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

SCENARIO = Path(os.environ["FAKE_NVML_SCENARIO"])
HALF_STEP_S = 0.6
MEMORY_BYTES = 3 << 30


def tell(name: str, key: str | int, value: float, start_s: float) -> None:
    """Add a row to the scenario, from now on."""
    with SCENARIO.open("a") as file:
        file.write(f"{time.time() - start_s:.6f},gpu0,{name},{key},{value}\n")


def spin(seconds: float) -> None:
    """Keep the main thread busy."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


def compute(start_s: float) -> None:
    tell("utilization_share", "", 1.0, start_s)
    spin(HALF_STEP_S)


def load(start_s: float) -> None:
    tell("utilization_share", "", 0.0, start_s)
    spin(HALF_STEP_S)


def train(start_s: float) -> None:
    while not select.select([sys.stdin], [], [], 0)[0]:
        compute(start_s)
        load(start_s)


def main() -> None:
    start_s = float(SCENARIO.read_text().split("start_unix_s,,")[1].splitlines()[0])
    tell("process_memory_bytes", os.getpid(), MEMORY_BYTES, start_s)
    print("ready", os.getpid(), flush=True)
    train(start_s)


if __name__ == "__main__":
    main()
