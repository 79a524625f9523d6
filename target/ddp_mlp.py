"""Train a multilayer perceptron on several processes by DistributedDataParallel; one rank may be made slow.

Run it by torchrun: ``torchrun --nproc-per-node 4 target/ddp_mlp.py --slow data --slow-rank 2``. A step waits for data
far more than it computes, so that four ranks have room on two cores.
"""

import argparse
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KINDS = ("data", "compute", "disk", "batch")
BATCH_SIZE, LONG_BATCH_SIZE, FEATURES = 8, 4096, 256
FETCH_S, SLOW_FETCH_S = 0.005, 0.012
READ_S, SLOW_READ_S = 0.005, 0.060
SLOW_VALUES = 500_000
LETTING_GO_S = 0.2


class Records(Dataset):
    """Records of a store that answers after a while."""

    def __init__(self, fetch_s):
        self.fetch_s = fetch_s

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(self.fetch_s)
        generator = torch.Generator().manual_seed(index)
        return torch.rand(FEATURES, generator=generator), index % 10


class Disk:
    """A file on a disk that takes its time for each block: a pipe that is filled so slowly."""

    def __init__(self, read_s):
        self.read_s = read_s
        reading, self.writing = os.pipe()
        self.file = os.fdopen(reading, "rb", buffering=0)
        self.wanted = threading.Semaphore(0)
        threading.Thread(target=self.turn, daemon=True).start()

    def turn(self):
        while True:
            self.wanted.acquire()
            time.sleep(self.read_s)
            os.write(self.writing, bytes(FEATURES))


def read_block(disk):
    disk.wanted.release()
    return torch.frombuffer(bytearray(disk.file.read(FEATURES)), dtype=torch.uint8)


def normalize(values):
    total = 0.0
    for value in range(values):
        total += value * 1e-9
    return total


def main():
    args = parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    slow = args.slow if dist.get_rank() == args.slow_rank else None
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    model = DistributedDataParallel(model)
    loader = DataLoader(Records(SLOW_FETCH_S if slow == "data" else FETCH_S), batch_size=BATCH_SIZE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if dist.get_rank() == 0:
        print(f"training on {dist.get_world_size()} ranks", flush=True)
    steps, elapsed = train(model, loader, optimizer, slow, args.seconds, args.slower)
    if dist.get_rank() == 0:
        print(f"{steps} steps at {steps / elapsed:.2f}/s")
    dist.destroy_process_group()
    # Threads of gloo live on, and let go of the last tensor with the interpreter's lock: where that is gone they abort.
    time.sleep(LETTING_GO_S)


def train(model, loader, optimizer, slow, seconds, slower):
    criterion = nn.CrossEntropyLoss()
    disk = Disk(SLOW_READ_S if slow == "disk" else READ_S)
    started, is_over = time.perf_counter(), torch.zeros(1)
    for step, (records, labels) in enumerate(loader, 1):
        mask = read_block(disk) > 0
        scale = normalize(round(slower * SLOW_VALUES) if slow == "compute" else 1)
        if slow == "batch":
            records, labels = (
                records.repeat(LONG_BATCH_SIZE // BATCH_SIZE, 1),
                labels.repeat(LONG_BATCH_SIZE // BATCH_SIZE),
            )
        loss = criterion(model(records * scale + mask), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            is_over[0] = time.perf_counter() - started > seconds
            dist.broadcast(is_over, src=0)
            if is_over:
                break
    return step, time.perf_counter() - started


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slow", choices=KINDS, help="what is slow on one rank (default: nothing)")
    parser.add_argument("--slow-rank", type=int, default=2, help="which rank that is (default: 2)")
    parser.add_argument("--slower", type=float, default=1, help="how many times its usual slowness compute has")
    parser.add_argument("--seconds", type=float, default=60, help="how long to train (default: 60)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
