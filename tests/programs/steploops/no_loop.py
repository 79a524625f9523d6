"""Walks a tree for ever, by recursion: integers on every level, and none that counts steps. Usage: no_loop.py DIARY."""

import random
import time

import diary


def walk(depth: int) -> int:
    width = random.randrange(1, 4)
    seed = random.randrange(1_000_000)
    if depth == 12:
        diary.work(0.002)
        return seed
    return sum(walk(depth + 1) for _ in range(width)) % 1_000


def main() -> None:
    started_ns = time.monotonic_ns()
    result = walk(0)
    now_ns = time.monotonic_ns()
    if now_ns > started_ns + result:
        main()


diary.begin()
while True:
    main()
