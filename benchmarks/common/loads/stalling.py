"""A training whose loading takes its time from one line on stdin until the next: it answers each with a word."""

from __future__ import annotations

import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 8
# Between them, a step is held up for as long as it computes.
LOADING_S, COMPUTING_S = 0.05, 0.05


class Records(Dataset[torch.Tensor]):
    """Records of a store that is slow now and then."""

    def __init__(self) -> None:
        self.is_slow = threading.Event()

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.is_slow.is_set():
            time.sleep(LOADING_S / BATCH)
        return torch.rand(16)


class Model(torch.nn.Linear):
    """A model whose forward pass takes its time without using a core."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(COMPUTING_S)
        return super().forward(inputs)


def main() -> None:
    """Train until stdin ends."""
    torch.set_num_threads(1)
    records, model = Records(), Model(16, 1)
    listener = threading.Thread(target=listen, args=(records.is_slow,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, inputs in enumerate(DataLoader(records, batch_size=BATCH)):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            print("training", flush=True)
            listener.start()
        elif not listener.is_alive():
            return


def listen(is_slow: threading.Event) -> None:
    """Be slow from the first line on, and quick from the second."""
    for _ in sys.stdin:
        if is_slow.is_set():
            is_slow.clear()
            print("quick", flush=True)
        else:
            is_slow.set()
            print("slow", flush=True)


if __name__ == "__main__":
    main()
