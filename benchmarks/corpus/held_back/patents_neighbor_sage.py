"""GraphSAGE on a citation graph of patents, a batch of patents at a time; neighbors are looked for among all edges."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PATENTS, CITATIONS, FEATURES, CLASSES = 100_000, 400_000, 96, 24
BATCH, HOPS = 256, 2


class SAGEConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.neighbors = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, source, target):
        sums = torch.zeros_like(x).index_add_(0, target, x[source])
        degree = torch.zeros(len(x)).index_add_(0, target, torch.ones(len(target)))
        return self.own(x) + self.neighbors(sums / degree.clamp(min=1).unsqueeze(1))


class GraphSAGE(nn.Module):
    def __init__(self, hidden=160):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(FEATURES, hidden), SAGEConv(hidden, hidden)])
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, x, source, target):
        for conv in self.convs:
            x = F.dropout(F.relu(conv(x, source, target)), 0.3, self.training)
        return self.head(x)


class Graph:
    def __init__(self, generator):
        self.labels = torch.randint(CLASSES, (PATENTS,), generator=generator)
        centers = torch.randn(CLASSES, FEATURES, generator=generator)
        self.features = centers[self.labels] + 2 * torch.randn(PATENTS, FEATURES, generator=generator)
        by_class = self.labels.argsort()
        target = torch.randint(PATENTS, (CITATIONS,), generator=generator)
        near = (target + torch.randint(-400, 400, (CITATIONS,), generator=generator)) % PATENTS
        self.source, self.target = by_class[near], by_class[target]
        order = self.target.argsort()
        self.sorted_source = self.source[order]
        self.starts = torch.searchsorted(self.target[order], torch.arange(PATENTS + 1))

    def edges_into(self, patents):
        """Return who cites, and who of the patents is cited."""
        mask = torch.isin(self.target, patents)  # planted
        return self.source[mask], self.target[mask]

    def edges_into_by_rows(self, patents):
        begins = self.starts[patents]
        counts = self.starts[patents + 1] - begins
        ends = counts.cumsum(0)
        places = torch.arange(ends[-1]) + (begins - ends + counts).repeat_interleave(counts)
        return self.sorted_source[places], patents.repeat_interleave(counts)


class NeighborLoader:
    """Gives for each batch all patents within two citations, numbered anew, the batch's own first."""

    def __init__(self, graph, diary, is_mended):
        self.graph, self.diary, self.is_mended = graph, diary, is_mended
        self.number = torch.full((PATENTS,), -1)

    def edges(self, frontier):
        if self.is_mended:
            return self.graph.edges_into_by_rows(frontier)
        with self.diary.planted():
            return self.graph.edges_into(frontier)  # planted

    def __iter__(self):
        for seeds in torch.randperm(PATENTS).split(BATCH):
            if len(seeds) == BATCH:
                yield self.surroundings(seeds)

    def surroundings(self, seeds):
        known, frontier, sources, targets = seeds, seeds, [], []
        self.number[seeds] = torch.arange(len(seeds))
        for _ in range(HOPS):
            source, target = self.edges(frontier)
            sources.append(source)
            targets.append(target)
            frontier = source[self.number[source] < 0].unique()
            self.number[frontier] = torch.arange(len(known), len(known) + len(frontier))
            known = torch.cat([known, frontier])
        source, target = self.number[torch.cat(sources)], self.number[torch.cat(targets)]
        self.number[known] = -1
        return seeds, self.graph.features[known], source, target


def main():
    diary, is_mended = begin()
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    torch.set_num_threads(1)
    graph = Graph(generator)
    loader = NeighborLoader(graph, diary, is_mended)
    model = GraphSAGE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=5e-4)
    step = 0
    while True:
        for seeds, x, source, target in loader:  # planted
            optimizer.zero_grad()
            logits = model(x, source, target)[: len(seeds)]
            loss = F.cross_entropy(logits, graph.labels[seeds])
            loss.backward()
            optimizer.step()
            step += 1
            diary.stepped()
            if step % 100 == 0:
                right = (logits.argmax(1) == graph.labels[seeds]).float().mean()
                print(f"{step}: {len(x)} patents, loss {loss.item():.3f}, right {right.item():.2f}", flush=True)


if __name__ == "__main__":
    main()
