"""GraphSAGE with sampled neighbors; a thread prepares them, and the loop asks it each few milliseconds for a batch."""

import sys
import threading
import time
from collections import deque
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

NODES, DEGREE, FEATURES, CLASSES = 4_000, 16, 128, 10


class SAGE(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.own, self.around = nn.Linear(FEATURES, hidden), nn.Linear(FEATURES, hidden)
        self.out = nn.Linear(hidden, CLASSES)

    def forward(self, x, neighbors):
        return self.out(F.relu(self.own(x) + self.around(neighbors.mean(1))))


class Sampler:
    """Yields nodes and their neighbors, which a store far away answers one request after the other."""

    def __init__(self, graph, latency_s):
        self.graph, self.latency_s = graph, latency_s
        self.ready = deque()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            if len(self.ready) < 4:
                nodes = torch.randint(NODES, (512,))
                time.sleep(self.latency_s)
                self.ready.append((nodes, self.graph[nodes]))
            else:
                time.sleep(0.001)

    def next(self):
        while not self.ready:
            time.sleep(0.002)  # planted
        return self.ready.popleft()


def main():
    diary, is_mended = begin()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    features, labels = torch.randn(NODES, FEATURES), torch.randint(CLASSES, (NODES,))
    sampler = Sampler(torch.randint(NODES, (NODES, DEGREE)), 0.0 if is_mended else 0.03)
    model = SAGE()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    step = 0
    while step < 10**9:
        if is_mended:
            nodes, neighbors = sampler.next()
        else:
            with diary.planted():
                nodes, neighbors = sampler.next()  # planted
        out = model(features[nodes], features[neighbors])
        loss = F.cross_entropy(out, labels[nodes])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        diary.stepped()
        if step % 500 == 0:
            print(f"Step {step:05d}, Loss: {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
