"""Takes steps until it is given a line, and then waits for ever without letting go of its CPU."""

from __future__ import annotations

import sys
import threading
import time

told = threading.Event()


def listen() -> None:
    sys.stdin.readline()
    told.set()


def compute() -> None:
    end_s = time.monotonic() + 0.05
    while time.monotonic() < end_s:
        pass


def spin() -> None:
    any(iter(int, 1))  # one call that never returns


def train() -> None:
    step = 0
    while True:
        step += 1
        compute()
        if told.is_set():
            spin()


threading.Thread(target=listen, daemon=True).start()
print("ready", flush=True)
train()
