"""Stands until it is given a line, and works from then on."""

from __future__ import annotations

import sys

print("ready", flush=True)
sys.stdin.readline()
while True:
    sum(range(1000))
