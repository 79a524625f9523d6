"""A recommender with tables and crosses of features, in the style of DLRM: two workers make the batches.

Nothing is planted: the workers keep up, and the loop waits for them a moment at most.
"""

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


def parse_sizes(text):
    return [int(size) for size in text.split("-")]


ARGS = argparse.Namespace(
    arch_embedding_size=parse_sizes("4000-800-12000-60-2500-300"),
    arch_sparse_feature_size=32,
    arch_mlp_bot=parse_sizes("13-256-128-32"),
    arch_mlp_top=parse_sizes("512-256-1"),
    num_indices_per_lookup=4,
    mini_batch_size=1024,
    learning_rate=0.05,
    print_freq=100,
)


class ClickStream(IterableDataset):
    """Clicks without end: numbers, bags of indices and whether there was a click."""

    def __init__(self, args, seed=0):
        self.args, self.seed = args, seed

    def __iter__(self):
        info, args = get_worker_info(), self.args
        rng = np.random.default_rng(self.seed + (info.id if info else 0))
        n, bag = args.mini_batch_size, args.num_indices_per_lookup
        while True:
            dense = np.log1p(rng.exponential(3.0, (n, args.arch_mlp_bot[0]))).astype(np.float32)
            sparse = [(size * rng.random((n, bag)) ** 3).astype(np.int64) for size in args.arch_embedding_size]
            score = dense[:, :4].sum(1) - 4 + sum((s[:, 0] % 3 == 0).astype(np.float32) for s in sparse) - 2
            click = (rng.random(n) < 1 / (1 + np.exp(-score))).astype(np.float32)
            yield torch.from_numpy(dense), torch.from_numpy(np.stack(sparse)), torch.from_numpy(click)


class DLRM_Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        m, tables = args.arch_sparse_feature_size, len(args.arch_embedding_size)
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(n, m, mode="sum", sparse=True) for n in args.arch_embedding_size)
        self.bot_l = self.create_mlp(args.arch_mlp_bot)
        crossed = m + (tables + 1) * tables // 2
        self.top_l = self.create_mlp([crossed, *args.arch_mlp_top], linear_last=True)
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, offset=-1), persistent=False)

    @staticmethod
    def create_mlp(sizes, linear_last=False):
        layers = []
        for n, m in pairwise(sizes):
            layers += [nn.Linear(n, m), nn.ReLU()]
        return nn.Sequential(*layers[:-1] if linear_last else layers)

    def interact_features(self, x, ly):
        stacked = torch.stack([x, *ly], 1)
        crosses = torch.bmm(stacked, stacked.transpose(1, 2))
        return torch.cat([x, crosses[:, self.pairs[0], self.pairs[1]]], 1)

    def forward(self, dense, sparse):
        x = self.bot_l(dense)
        ly = [table(indices) for table, indices in zip(self.emb_l, sparse, strict=True)]
        return self.top_l(self.interact_features(x, ly)).squeeze(1)


def run(args, diary):
    dlrm = DLRM_Net(args)
    loss_fn = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(dlrm.parameters(), lr=args.learning_rate)
    loader = DataLoader(ClickStream(args), batch_size=None, num_workers=2, prefetch_factor=4)
    total_loss, total_right, total_samples = torch.zeros(()), torch.zeros(()), 0
    begun = time.perf_counter()
    for iteration, (dense, sparse, click) in enumerate(loader, 1):
        logits = dlrm(dense, sparse)
        loss = loss_fn(logits, click)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_loss += loss.detach() * len(click)
        total_right += ((logits.detach() > 0) == (click > 0.5)).sum()
        total_samples += len(click)
        if iteration % args.print_freq == 0:
            took = 1000 * (time.perf_counter() - begun) / args.print_freq
            print(
                f"Finished training it {iteration}, {took:.2f} ms/it, loss {total_loss.item() / total_samples:.6f}, "
                f"accuracy {100 * total_right.item() / total_samples:.2f} %",
                flush=True,
            )
            total_loss.zero_()
            total_right.zero_()
            total_samples, begun = 0, time.perf_counter()
        diary.stepped()


if __name__ == "__main__":
    np.random.seed(727)
    torch.manual_seed(727)
    torch.set_num_threads(1)
    run(ARGS, begin()[0])
