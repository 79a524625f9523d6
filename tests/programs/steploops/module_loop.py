"""Steps through batches at the top level of the script, epoch after short epoch. Usage: module_loop.py DIARY."""

import diary


def calculate() -> None:
    diary.work(0.03)


def correct() -> None:
    diary.work(0.025)


def evaluate() -> None:
    diary.work(0.05)


diary.begin()
for _epoch in range(10_000):
    for _batch in range(25):
        calculate()
        correct()
        diary.stepped()
    evaluate()
