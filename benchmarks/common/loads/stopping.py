"""Trains for a while, then stops for ever in a planted way, and prints when: ``stops`` and the wall time in ns.

Usage: stopping.py KIND SECONDS FOLDER, where KIND is queue, lock, collective, dead-worker or read. A collective is
started twice, with RANK 0 and 1; the second rank is the one that does not come.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAUSE_S = 0.03


def tell() -> None:
    """Say that it stops now."""
    print(f"stops {time.time_ns()}", flush=True)


def train(seconds: float, between: Callable[[], object]) -> None:
    """Train a small network for so long; between two steps something else is done."""
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, targets = torch.rand(64, 256), torch.randint(10, (64,))
    never, started, step = threading.Event(), time.monotonic(), 0
    while time.monotonic() - started < seconds:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        never.wait(PAUSE_S)
        between()
        step += 1


def answer(tasks: multiprocessing.Queue[int], results: multiprocessing.Queue[int]) -> None:
    """Answer each task, for ever."""
    while True:
        results.put(tasks.get() + 1)


def stop_in_queue(seconds: float, _: Path) -> None:
    """Wait for a result of a worker that waits for a task."""
    tasks: multiprocessing.Queue[int] = multiprocessing.Queue()
    results: multiprocessing.Queue[int] = multiprocessing.Queue()
    multiprocessing.Process(target=answer, args=(tasks, results), daemon=True).start()

    def ask() -> None:
        tasks.put(1)
        results.get()

    train(seconds, ask)
    tell()
    results.get()


def stop_in_lock(seconds: float, _: Path) -> None:
    """Wait for a lock whose holder waits for one that is held here."""
    first, second, held, is_time = threading.Lock(), threading.Lock(), threading.Event(), threading.Event()

    def other() -> None:
        is_time.wait()
        with second:
            held.set()
            with first:
                pass

    threading.Thread(target=other, daemon=True).start()
    train(seconds, lambda: None)
    with first:
        is_time.set()
        held.wait()
        tell()
        with second:
            pass


def stop_in_collective(seconds: float, folder: Path) -> None:
    """Wait for a rank that waits for something else."""
    rank, tensor = int(os.environ["RANK"]), torch.ones(8)
    goes_on = torch.ones(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)

    def meet() -> None:
        torch.distributed.all_reduce(tensor)

    ends = time.monotonic() + seconds
    while goes_on.item():  # rank 0 says when it is time, for both
        train(0.5, meet_not)
        meet()
        goes_on.fill_(time.monotonic() < ends)
        torch.distributed.broadcast(goes_on, 0)
    if rank == 1:
        tell()
        threading.Event().wait()
    meet()


def meet_not() -> None:
    """Do nothing: ranks that count their steps by time meet between them."""


def load(index: int) -> int:
    """Return a sample, unless it is the last one: the process that loads that one ends."""
    if index < 0:
        tell()
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def stop_at_dead_worker(seconds: float, _: Path) -> None:
    """Wait for what a worker of a pool had in hand when it was killed."""
    with multiprocessing.Pool(2) as pool:
        train(seconds, lambda: pool.map(load, range(4), chunksize=1))
        pool.map(load, [0, 1, -1], chunksize=1)


class Samples(Dataset[torch.Tensor]):
    """Numbers, one of which is behind a named pipe that nobody writes: a file server that does not answer."""

    def __init__(self, pipe: Path, seconds: float) -> None:
        os.mkfifo(pipe)
        self._pipe = pipe
        self._until = time.monotonic() + seconds

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if time.monotonic() > self._until:
            tell()
            self._pipe.read_bytes()
        return torch.full((4,), float(index))


def stop_in_read(seconds: float, folder: Path) -> None:
    """Wait for a loader's worker that opens a file which never comes."""
    samples = iter(DataLoader(Samples(folder / "sample", seconds), batch_size=4, num_workers=1))
    train(2 * seconds, lambda: next(samples))


STOPS = {
    "queue": stop_in_queue,
    "lock": stop_in_lock,
    "collective": stop_in_collective,
    "dead-worker": stop_at_dead_worker,
    "read": stop_in_read,
}

if __name__ == "__main__":
    if os.environ.get("RANK") != "1":  # one of them alone: both write to one pipe
        print("ready", flush=True)
    STOPS[sys.argv[1]](float(sys.argv[2]), Path(sys.argv[3]))
