"""Steps through the batches of epochs, with half a second of evaluation after each. Usage: nested_loops.py DIARY."""

import diary

BATCHES = 200


def evaluate() -> None:
    for _ in range(50):
        diary.work(0.01)


def train() -> None:
    for _epoch in range(1_000):
        for _i, _batch in enumerate([[0.5] * 8] * BATCHES):
            diary.work(0.04)
            diary.stepped()
        evaluate()


diary.begin()
train()
