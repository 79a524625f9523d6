"""A rank of a gloo job that trains, and stops for ever as planted, or has a slow part that is none; prints both.

Usage: desync.py KIND RANK SECONDS FOLDER, with torchrun's variables in the environment. RANK is the planted one.
"""

from __future__ import annotations

import os
import pdb
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

MINE, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
KIND, RANK, SECONDS, FOLDER = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
IS_PLANTED = MINE == RANK


def tell() -> None:
    """Say when the planted rank stops."""
    if IS_PLANTED:
        print("stops", time.time_ns(), flush=True)


def compute(seconds: float) -> None:
    """Compute in changing lines."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        x = torch.rand(64, 64)
        x = x @ x
        x.softmax(0)


class Stuck(Dataset[int]):
    """A data set whose worker reads a pipe that nobody writes."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        with (FOLDER / "pipe").open("rb") as pipe:
            return len(pipe.read())


def train(until_s: float, pause_s: float = 0.05) -> None:
    """Train: all ranks make the same number of steps."""
    gradient, step = torch.ones(1000), 0
    more = torch.ones(1)
    while more.item():
        step += 1
        compute(pause_s)
        dist.all_reduce(gradient)
        more[0] = float(time.monotonic() < until_s)
        dist.broadcast(more, 0)


def stop() -> None:
    """Stop as planted; the other ranks go on to the next collective."""
    gradient = torch.ones(1000)
    tell()
    if KIND == "killed":
        if IS_PLANTED:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        dist.distributed_c10d._get_default_store().wait(["never"], timedelta(seconds=600))
    elif KIND == "skipped":
        if not IS_PLANTED:
            dist.barrier()
        dist.all_reduce(gradient)
        dist.barrier()
    elif IS_PLANTED and KIND == "mismatch":
        dist.broadcast(gradient, RANK)
        dist.all_gather([torch.ones(1000) for _ in range(WORLD)], gradient)
    elif IS_PLANTED and KIND == "checkpoint":
        torch.save({"gradient": gradient}, FOLDER / "pipe")
    elif IS_PLANTED and KIND == "debugger":
        pdb.set_trace()
    elif IS_PLANTED and KIND == "loader":
        list(DataLoader(Stuck(), num_workers=1))
    elif IS_PLANTED and KIND == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(gradient)


def pause() -> None:
    """Have one rank do something long, or all."""
    if (KIND == "compile" and IS_PLANTED) or (KIND == "evaluation" and MINE == 0):
        compute(SECONDS)
    elif KIND == "checkpointing" and IS_PLANTED:
        until_s = time.monotonic() + SECONDS
        while time.monotonic() < until_s:
            (FOLDER / "saved").write_bytes(os.urandom(4 << 20))
            time.sleep(0.2)
    elif KIND == "uneven":
        compute(SECONDS * (MINE + 1) / WORLD)


def main() -> None:
    """Train, then stop or pause, and train on."""
    torch.set_num_threads(1)
    if KIND == "slow-start":
        compute(SECONDS * (MINE + 1) / WORLD)
    dist.init_process_group("gloo", init_method="env://", rank=MINE, world_size=WORLD, timeout=timedelta(seconds=600))
    if IS_PLANTED:
        print("ready", flush=True)
    train(time.monotonic() + 8)
    if KIND in ("compile", "evaluation", "checkpointing", "uneven", "slow-start", "none"):
        pause()
        train(time.monotonic() + 8)
        dist.barrier()
        dist.destroy_process_group()
    else:
        stop()


if __name__ == "__main__":
    main()
