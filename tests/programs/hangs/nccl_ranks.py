"""Two ranks that a script starts by itself, with a RAS service as NCCL's; on a line of input the second one stops.

Usage: nccl_ranks.py FOLDER, with NCCL_RAS_ADDR in the environment. The ranks have no rank there. Each maps a file with
NCCL's name, and listens at the same port. Rank 1 waits for a pipe that nobody writes; rank 0 waits for rank 1.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.ras import FakeCommunicator, FakeRank, RasServer

FOLDER = Path(sys.argv[1])


def wait_for_peer(lock: threading.Lock) -> None:
    """Wait as for another rank."""
    lock.acquire()
    lock.acquire()


def read_batch() -> bytes:
    """Read a pipe that nobody writes."""
    with (FOLDER / "pipe").open("rb") as pipe:
        return pipe.read()


def train(rank: int, pids: list[int], counts: list[int], stops: Event) -> None:
    """Make steps until ``stops`` is set."""
    with (FOLDER / "libnccl.so.2.30.7").open("rb") as library:
        mapped = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
    pids[rank] = os.getpid()
    port = int(os.environ["NCCL_RAS_ADDR"].rpartition(":")[2])
    with RasServer([], port=port) as server:
        server.communicators = Counted(pids, counts)
        while not all(pids):
            time.sleep(0.01)
        while not stops.is_set():
            counts[rank] += 1
            time.sleep(0.02)
        counts[0], counts[1] = 1001, 1000
        wait_for_peer(threading.Lock()) if rank == 0 else read_batch()
        mapped.close()


class Counted(list[FakeCommunicator]):
    """The communicator of both ranks, as they count now."""

    def __init__(self, pids: list[int], counts: list[int]) -> None:
        self._pids, self._counts = pids, counts

    def __iter__(self) -> Iterator[FakeCommunicator]:
        ranks = [FakeRank(rank, self._pids[rank]) for rank in range(2)]
        for rank in ranks:
            rank.launch("AllReduce", self._counts[rank.rank])
        return iter([FakeCommunicator(ranks)])

    def __len__(self) -> int:
        return 1


if __name__ == "__main__":
    (FOLDER / "libnccl.so.2.30.7").write_bytes(b"\0" * 4096)
    os.mkfifo(FOLDER / "pipe")
    context = multiprocessing.get_context("fork")
    pids, counts, stops = context.Array("q", 2, lock=False), context.Array("q", 2, lock=False), context.Event()
    ranks = [context.Process(target=train, args=(rank, pids, counts, stops)) for rank in range(2)]
    for one in ranks:
        one.start()
    while not all(pids):
        time.sleep(0.01)
    print("ready", flush=True)
    for _step in range(10**9):
        time.sleep(0.02)
        if select.select([sys.stdin], [], [], 0)[0]:
            break
    stops.set()
    for one in ranks:
        one.join()
