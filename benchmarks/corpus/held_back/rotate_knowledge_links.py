"""Links of a knowledge graph by RotatE, in the style of its authors' code: self-adversarial negatives, two kinds.

Nothing is planted: negatives are drawn for the whole batch, and only embeddings that a batch uses are updated.
"""

import argparse
import itertools
import logging
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import logsigmoid

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PI = 3.14159265358979


def parameters():
    return argparse.Namespace(
        entities=12_000, relations=40, triples=60_000, dimension=48, gamma=9.0, temperature=1.0, batch=128,
        negatives=48, rate=2e-3, log_steps=100,
    )  # fmt: skip


class RotatE(nn.Module):
    """Entities are complex vectors, relations are rotations of them."""

    def __init__(self, args):
        super().__init__()
        self.gamma, self.bound = args.gamma, (args.gamma + 2.0) / args.dimension
        self.entities = nn.Embedding(args.entities, 2 * args.dimension, sparse=True)
        self.relations = nn.Embedding(args.relations, args.dimension, sparse=True)
        for table in (self.entities, self.relations):
            nn.init.uniform_(table.weight, -self.bound, self.bound)

    def forward(self, heads, relations, tails):
        """Return scores; ``heads`` or ``tails`` may have several candidates per triple."""
        phase = self.relations(relations) / (self.bound / PI)
        cosine, sine = torch.cos(phase), torch.sin(phase)
        head_real, head_imaginary = self.entities(heads).chunk(2, dim=-1)
        tail_real, tail_imaginary = self.entities(tails).chunk(2, dim=-1)
        if heads.shape[1] > 1:  # turn the one tail back, and not the many heads
            real = cosine * tail_real + sine * tail_imaginary - head_real
            imaginary = cosine * tail_imaginary - sine * tail_real - head_imaginary
        else:
            real = cosine * head_real - sine * head_imaginary - tail_real
            imaginary = sine * head_real + cosine * head_imaginary - tail_imaginary
        return self.gamma - (real.square() + imaginary.square() + 1e-9).sqrt().sum(-1)


def make_triples(args):
    """Return triples of entities that are linked in clusters."""
    heads = torch.randint(args.entities, (args.triples,))
    relations = torch.randint(args.relations, (args.triples,))
    tails = (heads * 7 + relations * 31 + torch.randint(5, (args.triples,))) % args.entities
    return torch.stack([heads, relations, tails], dim=1)


def subsampling_weights(triples, args):
    """Return the weight of each triple, less where its head and relation are frequent."""
    pairs = triples[:, 0] * args.relations + triples[:, 1]
    _, inverse, counts = pairs.unique(return_inverse=True, return_counts=True)
    return (counts[inverse] + 4.0).rsqrt()


def batches(triples, weights, args):
    """Yield positives, negatives and weights for ever; heads and tails are replaced in turn."""
    for mode in itertools.cycle(["head-batch", "tail-batch"]):
        rows = torch.randint(len(triples), (args.batch,))
        negatives = torch.randint(args.entities, (args.batch, args.negatives))
        yield triples[rows], negatives, weights[rows], mode


def train_step(model, optimizer, batch, args):
    positives, negatives, weights, mode = batch
    heads, relations, tails = positives[:, :1], positives[:, 1:2], positives[:, 2:]
    positive = logsigmoid(model(heads, relations, tails)).squeeze(1)
    scores = model(negatives, relations, tails) if mode == "head-batch" else model(heads, relations, negatives)
    attention = (scores.detach() * args.temperature).softmax(1)
    negative = (attention * logsigmoid(-scores)).sum(1)
    total = weights.sum()
    positive_loss, negative_loss = -(weights * positive).sum() / total, -(weights * negative).sum() / total
    optimizer.zero_grad()
    ((positive_loss + negative_loss) / 2).backward()
    optimizer.step()
    return positive_loss.detach(), negative_loss.detach()


def main():
    diary, _ = begin()
    logging.basicConfig(format="%(asctime)s %(levelname)-8s %(message)s", level=logging.INFO, stream=sys.stdout)
    torch.manual_seed(30)
    torch.set_num_threads(1)
    args = parameters()
    triples = make_triples(args)
    model = RotatE(args)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=args.rate)
    logs = []
    for step, batch in enumerate(batches(triples, subsampling_weights(triples, args), args)):
        logs.append(train_step(model, optimizer, batch, args))
        if step % args.log_steps == 0:
            positive, negative = (torch.stack(losses).mean().item() for losses in zip(*logs, strict=True))
            logging.info("step %d: positive loss %.4f, negative loss %.4f", step, positive, negative)
            logs.clear()
        diary.stepped()


if __name__ == "__main__":
    main()
