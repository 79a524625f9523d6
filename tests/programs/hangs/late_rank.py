"""One of several gloo ranks; after some steps the last one asks the job's store for what nobody sets, for ever."""

from __future__ import annotations

import datetime
import os

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOREVER = datetime.timedelta(hours=1)
STEPS = 50


def load_shard(store: TCPStore) -> None:
    """Wait for a shard that nobody has prepared."""
    store.get("shard 7")


def train() -> None:
    torch.set_num_threads(1)
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, RANK == 0, FOREVER)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE, timeout=FOREVER)
    tensor = torch.ones(8)
    for step in range(1_000_000):
        sum(range(200_000))
        if RANK == SIZE - 1 and step == STEPS:
            load_shard(store)
        dist.all_reduce(tensor)


train()
