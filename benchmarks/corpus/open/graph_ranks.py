"""Embeddings of a graph of knowledge in TransE's manner; the mean rank of the true tails is looked at now and then."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ENTITIES, RELATIONS, WIDTH = 2000, 20, 96


class TransE(nn.Module):
    def __init__(self):
        super().__init__()
        self.entities, self.relations = nn.Embedding(ENTITIES, WIDTH), nn.Embedding(RELATIONS, WIDTH)

    def forward(self, triples):
        heads, relations, tails = triples.unbind(1)
        return (self.entities(heads) + self.relations(relations) - self.entities(tails)).norm(dim=1)


@torch.no_grad()
def mean_rank(model, triples):
    ranks = []
    for head, relation, tail in triples.tolist():
        wanted = model.entities.weight[head] + model.relations.weight[relation]
        distances = (wanted - model.entities.weight).norm(dim=1)  # planted
        ranks.append((distances < distances[tail]).sum())
    return torch.stack(ranks).float().mean()


def main(diary, is_mended):
    triples = torch.stack([torch.randint(most, (20_000,)) for most in (ENTITIES, RELATIONS, ENTITIES)], 1)
    model, loss_fn = TransE(), nn.MarginRankingLoss(1.0)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    step = 0
    while True:
        for batch in triples[torch.randperm(len(triples))].split(512):
            broken = batch.clone()
            broken[:, 2] = torch.randint(ENTITIES, (len(batch),))
            good, bad = model(batch), model(broken)
            loss = loss_fn(good, bad, -torch.ones(len(batch)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % (500 if is_mended else 5) == 0:
                with diary.planted():
                    mean_rank(model, triples[:24])  # planted
            step += 1
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(11)
    torch.set_num_threads(1)
    main(*begin())
