"""Two coroutines that take turns."""

import asyncio
import time

CALLS = {"fetch": {"spin"}, "compute": {"spin"}, "spin": set()}
SHARES = {"fetch": 0.4, "compute": 0.6}


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def fetch():
    while True:
        spin(0.0062)
        await asyncio.sleep(0)


async def compute():
    while True:
        spin(0.0093)
        await asyncio.sleep(0)


async def main():
    await asyncio.gather(fetch(), compute())


if __name__ == "__main__":
    print("ready", flush=True)
    asyncio.run(main())
