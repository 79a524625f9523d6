"""Steps through ``while step < n``, and counts samples beside. Usage: while_loop.py DIARY."""

import random

import diary


def train(steps: int) -> None:
    step = samples_seen = correct = 0
    while step < steps:
        diary.work(0.04)
        samples_seen += 32
        correct += random.randrange(32)
        step += 1
        diary.stepped()


diary.begin()
train(1_000_000)
