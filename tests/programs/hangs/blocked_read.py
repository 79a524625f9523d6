"""Reads a pipe that nobody writes to, but holds open."""

from __future__ import annotations

import os


def main() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x")
    os.read(reading, 1)
    print("ready", flush=True)
    os.read(reading, 1)


main()
