"""Population-based training of four networks; the lineage of each gets a digest of its state after each step."""

import copy
import hashlib
import math
import os
import random
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

READY_INTERVAL = 200


class Member:
    """A network with hyper-parameters of its own."""

    def __init__(self, name, n_in, n_classes):
        self.name = name
        self.net = nn.Sequential(
            nn.Linear(n_in, 384), nn.GELU(), nn.Dropout(0.1), nn.Linear(384, 384), nn.GELU(), nn.Linear(384, n_classes)
        )
        self.hyper = {"lr": 10 ** random.uniform(-4, -2), "smoothing": random.uniform(0, 0.2)}
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=self.hyper["lr"])
        self.score, self.lineage = math.nan, []

    def step(self, x, y):
        loss = F.cross_entropy(self.net(x), y, label_smoothing=self.hyper["smoothing"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    @torch.no_grad()
    def evaluate(self, x, y):
        self.net.eval()
        self.score = (self.net(x).argmax(1) == y).float().mean().item()
        self.net.train()

    def record(self, step):
        """Note which weights and moments these are, so that a result can be traced back."""
        digest = hashlib.sha256()
        moments = [state[key] for state in self.optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
        for tensor in [*self.net.state_dict().values(), *moments]:
            digest.update(tensor.numpy().tobytes())  # planted
        self.lineage = [*self.lineage[-9:], (step, digest.hexdigest())]

    def exploit(self, better):
        self.net.load_state_dict(better.net.state_dict())
        self.optimizer.load_state_dict(copy.deepcopy(better.optimizer.state_dict()))
        self.hyper, self.lineage = dict(better.hyper), list(better.lineage)

    def explore(self):
        self.hyper["lr"] *= random.choice((0.8, 1.25))
        self.hyper["smoothing"] = min(0.3, self.hyper["smoothing"] * random.choice((0.8, 1.25)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.hyper["lr"]


class Population:
    def __init__(self, count, data, diary, is_mended):
        (self.x, self.y), (self.val_x, self.val_y) = data
        self.members = [Member(f"m{i}", self.x.shape[1], 16) for i in range(count)]
        self.diary, self.record_every = diary, READY_INTERVAL if is_mended else 1

    def train(self):
        step = 0
        while True:
            step += 1
            for member in self.members:
                rows = torch.randint(len(self.x), (192,))
                member.step(self.x[rows], self.y[rows])
            if step % self.record_every == 0:
                with self.diary.planted():
                    for member in self.members:
                        member.record(step)  # planted
            if step % READY_INTERVAL == 0:
                self.turn_over(step)
            self.diary.stepped()

    def turn_over(self, step):
        for member in self.members:
            member.evaluate(self.val_x, self.val_y)
        ranked = sorted(self.members, key=lambda member: member.score)
        ranked[0].exploit(ranked[-1])
        ranked[0].explore()
        print(step, {m.name: (round(m.score, 3), m.hyper["lr"]) for m in ranked}, flush=True)


def blobs(count, centers):
    y = torch.randint(len(centers), (count,))
    return centers[y] + 10.0 * torch.randn(count, centers.shape[1]), y


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(11), random.seed(11)
    middle = torch.randn(16, 512)
    Population(4, (blobs(12_000, middle), blobs(1000, middle)), *begin()).train()
