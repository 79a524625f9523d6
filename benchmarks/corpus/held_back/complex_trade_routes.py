"""ComplEx on a graph of trade, with all entities as negatives, and filtered ranks every ten steps.

Planted: what must be left out of a rank is found by asking for each entity whether the triple is known.
Mended: the known tails of a head and a relation are looked up.
"""

import sys
from collections import defaultdict
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ENTITIES, RELATIONS = 2400, 14


class ComplEx(nn.Module):
    def __init__(self, rank=64):
        super().__init__()
        self.entities = nn.Parameter(0.1 * torch.randn(ENTITIES, 2 * rank))
        self.relations = nn.Parameter(0.1 * torch.randn(RELATIONS, 2 * rank))
        self.rank = rank

    def forward(self, heads, relations):
        """Return the scores of all tails."""
        h_re, h_im = self.entities[heads].split(self.rank, 1)
        r_re, r_im = self.relations[relations].split(self.rank, 1)
        query = torch.cat((h_re * r_re - h_im * r_im, h_re * r_im + h_im * r_re), 1)
        return query @ self.entities.T, (h_re**2 + h_im**2).sqrt().pow(3).mean() + (r_re**2 + r_im**2).sqrt().pow(
            3
        ).mean()


def trade_graph(count):
    """Return triples: each relation leads from a block of entities to another one."""
    heads = torch.randint(ENTITIES, (count,))
    relations = torch.randint(RELATIONS, (count,))
    tails = (heads * 3 + relations * 97 + torch.randint(12, (count,))) % ENTITIES
    triples = torch.unique(torch.stack((heads, relations, tails), 1), dim=0)
    return triples[torch.randperm(len(triples))]


class AskingFilter:
    def __init__(self, triples):
        self.known = set(map(tuple, triples.tolist()))

    def others(self, head, relation, tail):
        """Return the tails besides this one that are known, too."""
        found = []
        for entity in range(ENTITIES):
            if (head, relation, entity) in self.known and entity != tail:  # planted
                found.append(entity)
        return found


class LookupFilter:
    def __init__(self, triples):
        self.tails = defaultdict(set)
        for head, relation, tail in triples.tolist():
            self.tails[head, relation].add(tail)

    def others(self, head, relation, tail):
        """Return the tails besides this one that are known, too."""
        return list(self.tails[head, relation] - {tail})


class Evaluation:
    def __init__(self, triples, known_filter, diary):
        self.triples, self.filter, self.diary = triples, known_filter, diary

    def left_out(self, triples):
        rows, columns = [], []
        for row, triple in enumerate(triples.tolist()):
            others = self.filter.others(*triple)  # planted
            rows += [row] * len(others)
            columns += others
        return rows, columns

    @torch.no_grad()
    def ranks(self, model, size=150):
        triples = self.triples[torch.randint(len(self.triples), (size,))]
        scores, _ = model(triples[:, 0], triples[:, 1])
        right = scores.gather(1, triples[:, 2:])
        with self.diary.planted():
            rows, columns = self.left_out(triples)  # planted
        scores[rows, columns] = float("-inf")
        return 1 + (scores > right).sum(1)


def main():
    diary, mended = begin()
    torch.manual_seed(29)
    torch.set_num_threads(1)
    triples = trade_graph(60_000)
    valid, training = triples[:3000], triples[3000:]
    evaluation = Evaluation(valid, (LookupFilter if mended else AskingFilter)(triples), diary)
    model = ComplEx()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    step, order = 0, torch.randperm(len(training))
    while True:
        for rows in order.split(384)[:-1]:
            batch = training[rows]
            scores, penalty = model(batch[:, 0], batch[:, 1])
            loss = F.cross_entropy(scores, batch[:, 2]) + 0.01 * penalty
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                ranks = evaluation.ranks(model)  # planted
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.3f} MRR {(1 / ranks).mean().item():.3f}", flush=True)
            diary.stepped()
        order = torch.randperm(len(training))


if __name__ == "__main__":
    main()
