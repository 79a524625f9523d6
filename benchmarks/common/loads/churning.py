"""A training loop under which processes start and exit all the time, beside two that stay.

Usage: churning.py PER_SECOND [SECONDS]: how many children start a second (0 for none), and for how long; then the loop
goes on without. A child lives between a tenth of a second and a second and a half; every eighth becomes another
program with exec. Two more live as long as this program.
"""

import os
import subprocess
import sys
import time

LIVES_S = (0.1, 0.4, 0.8, 1.5)


def compute(seconds: float) -> None:
    """Keep a core busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def work(parent: int, seconds: float) -> None:
    """Work a little, as a child, for so long or until the parent is gone."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and os.getppid() == parent:
        compute(0.001)
        time.sleep(0.049)


def fork_worker(seconds: float) -> None:
    """Start a child that works for a while."""
    parent = os.getpid()
    if os.fork() == 0:
        work(parent, seconds)
        os._exit(0)


def start_child(number: int) -> None:
    """Start a child of the kind that is due."""
    if number % 8 == 7:
        subprocess.Popen(["/bin/sleep", str(LIVES_S[number % len(LIVES_S)])])
    else:
        fork_worker(LIVES_S[number % len(LIVES_S)])


def reap() -> None:
    """Wait for the children that have ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def train(per_second: float, until_s: float) -> None:
    """Take steps for ever; start children while it is time."""
    started, number = time.monotonic(), 0
    while True:
        compute(0.005)
        time.sleep(0.005)
        reap()
        elapsed = time.monotonic() - started
        if elapsed < until_s and elapsed * per_second > number:
            start_child(number)
            number += 1


def main() -> None:
    """Start those that stay, and train."""
    per_second = float(sys.argv[1])
    for _ in range(2):
        fork_worker(1e9)
    print("ready", flush=True)
    train(per_second, float(sys.argv[2]) if len(sys.argv) > 2 else 1e9)


if __name__ == "__main__":
    main()
