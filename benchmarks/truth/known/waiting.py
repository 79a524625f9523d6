"""Waits, and computes for a fixed CPU time. Where others compute too, a profiler may show the wait too large."""

from time import sleep, thread_time, time_ns

import diary

CALLS = {
    "main": {"wait", "first", "second"},
    "wait": set(),
    "first": {"compute"},
    "second": {"compute"},
    "compute": set(),
}
PHASES = ("wait", "first", "second")


def compute(cpu_s):
    end_s = thread_time() + cpu_s
    total = 0
    while thread_time() < end_s:
        for number in range(200):
            total += number


def wait():
    sleep(0.004)


def first():
    compute(0.006)


def second():
    compute(0.003)


def main(note):
    while True:
        note(time_ns())
        wait()
        note(time_ns())
        first()
        note(time_ns())
        second()


if __name__ == "__main__":
    diary.ready()
    main(diary.track())
