"""Trains with all that takes long and is no hang, each for longer than profd has patience; then ends.

Usage: pauses.py SECONDS SEED FOLDER. A scan of the data set, a first step that compiles, evaluations, checkpoints to a
slow disk, a wait for a child that works, a download; SECONDS is how long each of these is, give or take a fifth.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

WORK = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: sum(range(9999))"
TRAIN_S = 15.0


class Job:
    """A training whose slow parts take a given time."""

    def __init__(self, seconds: float, chance: random.Random, folder: Path) -> None:
        torch.set_num_threads(1)
        self.model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.inputs, self.targets = torch.rand(64, 256), torch.randint(10, (64,))
        self._seconds, self._chance, self._folder = seconds, chance, folder

    def length_s(self) -> float:
        """Return how long the next slow part takes."""
        return self._seconds * self._chance.uniform(0.8, 1.2)

    def scan(self) -> None:
        """Look at every file of a data set on a disk that answers slowly."""
        files = [self._folder / f"{number}.txt" for number in range(100)]
        for path in files:
            path.write_text("sample")
        ends = time.monotonic() + self.length_s()
        while time.monotonic() < ends:
            for path in files:
                path.stat()
                time.sleep(0.02)

    def compile(self) -> None:
        """Compile the forward pass anew: its compiler is a child."""
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self._folder / "inductor")
        self.model.forward = torch.compile(self.model.forward)  # type: ignore[method-assign]
        self.model(self.inputs)

    def train(self) -> None:
        """Train for a while."""
        ends, step = time.monotonic() + TRAIN_S, 0
        while time.monotonic() < ends:
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(self.inputs), self.targets).backward()
            self.optimizer.step()
            step += 1

    def evaluate(self) -> None:
        """Take no step for a while, but use the processor."""
        ends, right = time.monotonic() + self.length_s(), 0
        with torch.no_grad():
            while time.monotonic() < ends:
                right += int((self.model(self.inputs).argmax(1) == self.targets).sum())

    def save(self) -> None:
        """Write a checkpoint to a disk that takes four megabytes a second."""
        ends = time.monotonic() + self.length_s()
        with (self._folder / "checkpoint").open("wb") as file:
            while time.monotonic() < ends:
                file.write(bytes(1 << 20))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.25)

    def convert(self) -> None:
        """Wait for a child that works."""
        subprocess.run([sys.executable, "-c", WORK, str(self.length_s())], check=True)

    def download(self) -> None:
        """Receive what comes slowly."""
        here, there = socket.socketpair()
        ends = time.monotonic() + self.length_s()

        def send() -> None:
            while time.monotonic() < ends:
                there.send(b"x" * 100)
                time.sleep(0.05)
            there.close()

        threading.Thread(target=send, daemon=True).start()
        while here.recv(100):
            pass


def main() -> None:
    """Train, with each of the slow parts once, those after the first step in any order."""
    seconds, chance, folder = float(sys.argv[1]), random.Random(int(sys.argv[2])), Path(sys.argv[3])
    print("ready", flush=True)
    job = Job(seconds, chance, folder)
    job.scan()
    job.compile()
    job.train()
    parts = [job.evaluate, job.save, job.convert, job.download]
    chance.shuffle(parts)
    for part in parts:
        part()
        job.train()


if __name__ == "__main__":
    main()
