"""LightGCN on baskets of a grocery: embeddings are spread over the graph of users and products, then ranked in pairs.

Nothing is planted: the normalized graph is made once, negatives are drawn at once, and recall is rare.
"""

import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Baskets:
    """Purchases of users, split into those of training and one held back a user."""

    def __init__(self, n_users=2000, n_items=1200, per_user=24, groups=12):
        self.n_users, self.n_items = n_users, n_items
        taste = torch.randint(groups, (n_users, 1))
        kind = torch.arange(n_items) % groups
        scores = torch.rand(n_users, n_items) + 0.5 * (kind == taste)
        bought = scores.topk(per_user, dim=1).indices
        bought = bought[:, torch.randperm(per_user)]
        self.held = bought[:, 0]
        self.items = bought[:, 1:].flatten()
        self.users = torch.arange(n_users).repeat_interleave(per_user - 1)

    def __len__(self):
        return len(self.users)

    def graph(self):
        """Return the symmetric graph, normalized by degrees, as CSR."""
        rows = torch.cat([self.users, self.items + self.n_users])
        columns = torch.cat([self.items + self.n_users, self.users])
        size = self.n_users + self.n_items
        degree = torch.bincount(rows, minlength=size).clamp(min=1).float()
        values = degree[rows].rsqrt() * degree[columns].rsqrt()
        return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (size, size)).coalesce().to_sparse_csr()

    def seen(self):
        mask = torch.zeros(self.n_users, self.n_items, dtype=torch.bool)
        mask[self.users, self.items] = True
        return mask


class Spread(torch.autograd.Function):
    """The product of the symmetric graph and embeddings: its gradient is the product with the same graph."""

    @staticmethod
    def forward(ctx, graph, x):
        ctx.graph = graph
        return graph @ x

    @staticmethod
    def backward(ctx, grad):
        return None, ctx.graph @ grad.contiguous()


class LightGCN(nn.Module):
    def __init__(self, data, size=64, layers=3):
        super().__init__()
        self.n_users, self.layers = data.n_users, layers
        self.graph = data.graph()
        self.embedding = nn.Embedding(data.n_users + data.n_items, size)
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self):
        x = self.embedding.weight
        total = x
        for _ in range(self.layers):
            x = Spread.apply(self.graph, x)
            total = total + x
        return (total / (self.layers + 1)).tensor_split([self.n_users])

    def penalty(self, users, positives, negatives):
        rows = torch.cat([users, positives + self.n_users, negatives + self.n_users])
        return self.embedding(rows).pow(2).sum() / (2 * len(users))


def bpr_step(model, optimizer, users, positives, n_items, decay=1e-4):
    negatives = torch.randint(n_items, positives.shape)
    user_table, item_table = model()
    wanted = user_table[users]
    margin = (wanted * (item_table[positives] - item_table[negatives])).sum(1)
    loss = F.softplus(-margin).mean() + decay * model.penalty(users, positives, negatives)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def recall(model, data, seen, k=20):
    users, items = model()
    scores = (users @ items.T).masked_fill(seen, -torch.inf)
    return (scores.topk(k, dim=1).indices == data.held[:, None]).any(1).float().mean().item()


def main():
    diary, _ = begin()
    torch.manual_seed(2020)
    torch.set_num_threads(1)
    data = Baskets()
    seen = data.seen()
    model = LightGCN(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1_000_000):
        total, batches = torch.zeros(()), 0
        for rows in torch.randperm(len(data)).split(1024):
            total += bpr_step(model, optimizer, data.users[rows], data.items[rows], data.n_items)
            batches += 1
            diary.stepped()
        if epoch % 20 == 0:
            print(
                f"epoch {epoch}: BPR {total.item() / batches:.4f} recall@20 {recall(model, data, seen):.4f}", flush=True
            )


if __name__ == "__main__":
    main()
