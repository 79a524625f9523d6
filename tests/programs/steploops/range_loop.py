"""Steps through ``for i in range(n)``, each step with a loop over layers in it. Usage: range_loop.py DIARY."""

import diary


def forward(layers: int) -> None:
    for layer in range(layers):
        diary.work(0.005 + 0.0001 * layer)


def train() -> None:
    for _step in range(1_000_000):
        forward(8)
        for group in range(4):
            diary.work(0.002 * group)
        diary.stepped()


diary.begin()
train()
