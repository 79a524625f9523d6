"""A loop that notes the end of each step: what a profiler costs it shows in these times.

Usage: stepping.py KIND FILE, KIND being one of ``KINDS``. Says ``ready``, and runs until its stdin ends; FILE then has
two 64-bit numbers a step: the monotonic clock at its end and the CPU time of the process, in nanoseconds.
"""

from __future__ import annotations

import array
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import many_threads
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORKERS, PYTHON_THREADS = 2, 160


class Training:
    """A small network and its optimizer."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Take an optimizer step."""
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(inputs), targets).backward()
        self.optimizer.step()


class Stored(Dataset[tuple[torch.Tensor, int]]):
    """Samples that a worker has to wait for, as for those on a disk."""

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.0015)
        return torch.full((256,), index * 0.5), index % 10


class Computed(Stored):
    """Samples that take a fixed amount of work."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        total = 0.0
        for number in range(8_000):
            total += number * 0.5
        return torch.full((256,), total), index % 10


def small_steps() -> Iterator[None]:
    """Take small steps on one batch."""
    training = Training()
    inputs, targets = torch.randn(64, 256), torch.randint(10, (64,))
    while True:
        training.step(inputs, targets)
        yield


def data_bound(samples: Stored) -> Iterator[None]:
    """Take steps on batches that two workers are slow to make."""
    training = Training()
    for inputs, targets in DataLoader(samples, batch_size=8, num_workers=WORKERS, sampler=range(1 << 40)):
        training.step(inputs, targets)
        yield


def crowd_of_threads() -> Iterator[None]:
    """Take small steps beside threads of Python that work now and then, and torch's pool."""
    many_threads.fill_pool()

    def prepare() -> None:
        batch = torch.randn(32, 32)
        while True:
            batch = torch.tanh(batch @ batch)
            time.sleep(0.5)

    for _ in range(PYTHON_THREADS):
        threading.Thread(target=prepare, daemon=True).start()
    return small_steps()


def restless() -> Iterator[None]:
    """Call and return all the time: a small step, and some hundred lines of a log that nobody keeps."""
    training, log = Training(), logging.getLogger("restless")
    log.addHandler(logging.StreamHandler(open(os.devnull, "w")))  # noqa: SIM115, PTH123  open to the end
    inputs, targets = torch.randn(8, 256), torch.randint(10, (8,))
    while True:
        training.step(inputs, targets)
        for number in range(200):
            log.warning("sample %d of %s", number, "this step")
        yield


KINDS: dict[str, Callable[[], Iterator[None]]] = {
    "small steps": small_steps,
    "data-bound": functools.partial(data_bound, Stored()),
    "cores full": functools.partial(data_bound, Computed()),
    "many threads": crowd_of_threads,
    "restless": restless,
}


def main(kind: str, file: Path) -> None:
    """Step until the end of stdin."""
    torch.set_num_threads(1)
    noted, over = array.array("q"), threading.Event()
    steps = KINDS[kind]()
    for _ in range(50):
        next(steps)

    def wait_over() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_over, daemon=True).start()
    print("ready", flush=True)
    while not over.is_set():
        next(steps)
        noted.append(time.monotonic_ns())
        noted.append(time.process_time_ns())
    file.write_bytes(noted.tobytes())
    os._exit(0)  # threads that are inside of torch would take the process along


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
