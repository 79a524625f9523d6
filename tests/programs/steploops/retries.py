"""Waits for something that does not come, and tries again now and then. Usage: retries.py DIARY."""

import time

import diary


def poll(attempt: int) -> bool:
    deadline_s = int(time.monotonic()) + 2 + attempt
    while time.monotonic() < deadline_s:
        diary.work(0.01)
    return False


def wait() -> None:
    failures = 0
    while True:
        for attempt in range(2):
            now_ns = time.monotonic_ns()
            if poll(attempt):
                return
            failures = (failures + attempt) % 2
            del now_ns


diary.begin()
wait()
