"""A torch process of 200 threads and more that does a fixed amount of work and says how long it took.

Usage: many_threads.py STEPS. The threads are what a large machine gives a training process without being asked: Python
threads that do small torch operations now and then, and torch's pools. Says ``THREADS WALL_S CPU_S``.
"""

import os
import sys
import threading
import time
import warnings

import torch
from torch import nn

PYTHON_THREADS = 120
POOL_THREADS = 80

warnings.simplefilter("ignore", FutureWarning)  # torch would rather compile; its pool is asked for in no newer way


@torch.jit.script
def double(x: torch.Tensor) -> torch.Tensor:
    """Be something that the pool can be asked to do."""
    return x + x


def fill_pool() -> None:
    """Make torch start the threads of its pool for operations side by side; they wait there from then on."""
    torch.set_num_interop_threads(POOL_THREADS)
    futures = [torch.jit.fork(double, torch.ones(8)) for _ in range(POOL_THREADS)]
    for future in futures:
        torch.jit.wait(future)


def prepare_batches(over: threading.Event) -> None:
    """Do a small operation now and then until it is over."""
    batch = torch.randn(32, 32)
    while not over.wait(0.25):
        batch = torch.tanh(batch @ batch)


def train(steps: int) -> None:
    """Take ``steps`` optimizer steps on one batch."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(64, 256), torch.randint(10, (64,))
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def main() -> None:
    """Start the threads and work."""
    torch.set_num_threads(1)  # that of the loop itself: more would measure how two cores are fought for
    fill_pool()
    over = threading.Event()
    threads = [threading.Thread(target=prepare_batches, args=(over,)) for _ in range(PYTHON_THREADS)]
    for thread in threads:
        thread.start()
    train(50)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    train(int(sys.argv[1]))
    taken = time.perf_counter() - wall_s, time.process_time() - cpu_s
    print(len(os.listdir("/proc/self/task")), *taken, flush=True)
    over.set()
    for thread in threads:  # a thread that Python breaks off inside of torch takes the process along
        thread.join()


if __name__ == "__main__":
    main()
