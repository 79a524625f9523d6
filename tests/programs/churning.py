"""Forks a child for each line on stdin, and ends the one before; two more children stay to the end.

Prints the PID of each new child. Every third becomes another program.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def stay() -> int:
    """Fork a child that works a little until its parent is gone; return its PID."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        while os.getppid() == parent:
            time.sleep(0.01)
        os._exit(0)
    return pid


def come(number: int) -> int:
    """Fork a child that stays until it is ended; return its PID."""
    pid = stay() if number % 3 else os.posix_spawn("/bin/sleep", ["sleep", "3600"], {})
    print(pid, flush=True)
    return pid


def main() -> None:
    for _ in range(2):
        print("stays", stay(), flush=True)
    print("ready", flush=True)
    last = 0
    for number, _ in enumerate(sys.stdin):
        came = come(number)
        if last:
            os.kill(last, signal.SIGKILL)
            os.waitpid(last, 0)
        last = came
    if last:
        os.kill(last, signal.SIGKILL)


main()
