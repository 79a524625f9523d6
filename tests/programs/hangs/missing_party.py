"""Two threads wait at a barrier for three. With --mended it is for two."""

import sys
import threading
import time

barrier = threading.Barrier(2 if "--mended" in sys.argv else 3)


def meet() -> None:
    barrier.wait()


other = threading.Thread(target=meet, name="other", daemon=True)
other.start()
print("ready", flush=True)
meet()
while True:  # it goes on
    sum(range(100_000))
    time.sleep(0.02)
