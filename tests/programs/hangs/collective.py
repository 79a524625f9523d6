"""One of two gloo ranks, the second of which never joins the second all_reduce."""

from __future__ import annotations

import os
import sys
import threading

import torch
import torch.distributed


def train(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    tensor = torch.ones(8)
    torch.distributed.all_reduce(tensor)
    if rank == 1:
        print("ready", flush=True)
        threading.Event().wait()
    torch.distributed.all_reduce(tensor)


train(int(os.environ["RANK"]), sys.argv[1])
