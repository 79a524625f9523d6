"""Two coroutines that take turns."""

import asyncio
from time import perf_counter, time_ns

import diary
from dozing import doze

CALLS = {"fetch": {"doze", "sleep"}, "compute": {"doze", "sleep"}, "doze": set()}
PHASES = ("fetch", "compute")


async def fetch(note):
    while True:
        note(time_ns())
        doze(perf_counter() + 0.0062)
        await asyncio.sleep(0)


async def compute(note):
    while True:
        note(time_ns())
        doze(perf_counter() + 0.0093)
        await asyncio.sleep(0)


async def main(note):
    await asyncio.gather(fetch(note), compute(note))


if __name__ == "__main__":
    diary.ready()
    asyncio.run(main(diary.track()))
