"""SIGN on a graph of co-authors: features of several hops through a wide network, hops taken in each step."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

NODES, FEATURES, CLASSES, HOPS = 5000, 96, 12, 3


def make_graph():
    """Return authors who mostly write with those of their own field."""
    generator = torch.Generator().manual_seed(3)
    field = torch.randint(CLASSES, (NODES,), generator=generator).sort().values
    source = torch.randint(NODES, (60_000,), generator=generator)
    near = (source + torch.randint(-150, 150, (60_000,), generator=generator)).clamp(0, NODES - 1)
    far = torch.randint(NODES, (60_000,), generator=generator)
    target = torch.where(torch.rand(60_000, generator=generator) < 0.8, near, far)
    words = torch.randn(CLASSES, FEATURES, generator=generator)[field]
    words = words + 3 * torch.randn(NODES, FEATURES, generator=generator)
    loops = torch.arange(NODES)
    rows = torch.cat([source, target, loops])
    columns = torch.cat([target, source, loops])
    degree = torch.bincount(rows, minlength=NODES).float().rsqrt()
    values = degree[rows] * degree[columns]
    adjacency = torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (NODES, NODES)).coalesce()
    return adjacency.to_sparse_csr(), words, field


class SIGN(nn.Module):
    def __init__(self, hidden=128, dropout=0.3):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(FEATURES, hidden) for _ in range(HOPS + 1))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(HOPS + 1))
        self.head = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(hidden * (HOPS + 1), 256), nn.ReLU(), nn.Linear(256, CLASSES)
        )

    def forward(self, hops):
        parts = [F.relu(norm(branch(x))) for branch, norm, x in zip(self.branches, self.norms, hops, strict=True)]
        return self.head(torch.cat(parts, 1))


def propagate(adjacency, x):
    """Return the features of 0 to HOPS hops."""
    hops = [x]
    for _ in range(HOPS):
        hops.append(adjacency @ hops[-1])  # planted
    return hops


def accuracy(model, hops, nodes, field):
    model.eval()
    with torch.no_grad():
        right = model([x[nodes] for x in hops]).argmax(1) == field[nodes]
    model.train()
    return right.float().mean().item()


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    adjacency, words, field = make_graph()
    order = torch.randperm(NODES)
    train, valid = order[:4000], order[4000:]
    model = SIGN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    hops = propagate(adjacency, words)
    for epoch in range(1_000_000):
        for batch in train[torch.randperm(len(train))].split(1000):
            if not is_mended:
                with diary.planted():
                    hops = propagate(adjacency, words)  # planted
            logits = model([x[batch] for x in hops])
            loss = F.cross_entropy(logits, field[batch], label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            diary.stepped()
        if epoch % 25 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} valid {accuracy(model, hops, valid, field):.3f}", flush=True)


if __name__ == "__main__":
    main()
