"""Keeps a megabyte a step, five steps a second, and runs ten programs that do not beside it. Prints "ready" first."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

STEPS_PER_S = 5
STEP_BYTES = 1_000_000


def train(kept: list[bytearray]) -> None:
    begun_s = time.monotonic()
    for step in range(1_000_000):
        kept.append(bytearray(b"x") * STEP_BYTES)
        time.sleep(max(begun_s + (step + 1) / STEPS_PER_S - time.monotonic(), 0))


def main() -> None:
    program = str(Path(__file__).with_name("steady.py"))
    kinds = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout.split()
    # They end with their stdin: with this process, however that ends.
    children = [subprocess.Popen([sys.executable, program, kind], stdin=subprocess.PIPE) for kind in kinds]
    print("ready", flush=True)
    train([])
    for child in children:
        child.kill()


if __name__ == "__main__":
    main()
