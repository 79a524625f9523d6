"""Four threads that wait in one place and then in another."""

import threading
import time
from time import perf_counter, time_ns

import diary

CALLS = {"work": {"left", "right"}, "left": set(), "right": set()}
PHASES = ("left", "right")


def left(end):
    time.sleep(max(end - perf_counter(), 0))


def right(end):
    time.sleep(max(end - perf_counter(), 0))


def work(note):
    at = perf_counter()
    while True:
        note(time_ns())
        left(at + 0.0246)
        note(time_ns())
        right(at + 0.041)
        at += 0.041


def main():
    threads = [threading.Thread(target=work, args=[diary.track()], daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    diary.ready()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
