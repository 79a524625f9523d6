"""Four threads that wait in one place and then in another."""

import threading
import time

CALLS = {"work": {"left", "right"}, "left": set(), "right": set()}
SHARES = {"left": 0.6, "right": 0.4}


def left(end):
    time.sleep(max(end - time.perf_counter(), 0))


def right(end):
    time.sleep(max(end - time.perf_counter(), 0))


def work():
    at = time.perf_counter()
    while True:
        left(at + 0.0246)
        right(at + 0.041)
        at += 0.041


def main():
    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    print("ready", flush=True)
    main()
