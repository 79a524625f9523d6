"""Waits for a lock file that nobody removes. With --mended it is removed after a while."""

import os
import sys
import tempfile
import time
from pathlib import Path

lock = Path(tempfile.mkdtemp()) / "build.lock"


def wait_until_free() -> None:
    while lock.exists():
        time.sleep(0.1)


def main() -> None:
    lock.touch()
    print("ready", flush=True)
    if "--mended" in sys.argv and not os.fork():
        time.sleep(8)
        lock.unlink()
        os._exit(0)
    wait_until_free()
    while True:  # it goes on
        sum(range(100_000))
        time.sleep(0.02)


main()
