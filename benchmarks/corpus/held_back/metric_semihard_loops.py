"""Metric learning with semi-hard triplets: the miner walks over the matrix of distances number by number."""

import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

IDENTITIES, PER_IDENTITY, MARGIN = 12, 4, 0.2


class Faces(Dataset):
    """Pictures of persons: a smooth pattern each, that is shifted and noisy."""

    def __init__(self, persons=80, pictures=20, size=40):
        coarse = torch.randn(persons, 3, 5, 5)
        self.patterns = F.interpolate(coarse, size=size, mode="bilinear", align_corners=False)
        self.labels = torch.arange(persons).repeat_interleave(pictures)
        self.shifts = torch.randint(-3, 4, (len(self.labels), 2)).tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        label = self.labels[index]
        picture = torch.roll(self.patterns[label], self.shifts[index], dims=(1, 2))
        return picture + 0.2 * torch.randn_like(picture), label


class MPerClassSampler(Sampler):
    """Batches with as many pictures of each of some persons."""

    def __init__(self, labels, batches):
        self.rows = {int(label): torch.where(labels == label)[0] for label in labels.unique()}
        self.batches = batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        names = list(self.rows)
        for _ in range(self.batches):
            chosen = torch.randperm(len(names))[:IDENTITIES].tolist()
            picks = [self.rows[names[one]] for one in chosen]
            yield torch.cat([rows[torch.randperm(len(rows))[:PER_IDENTITY]] for rows in picks]).tolist()


class Embedding(nn.Module):
    def __init__(self, width=32, out=64):
        super().__init__()
        layers = []
        for before, after in ((3, width), (width, 2 * width), (2 * width, 3 * width)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        self.trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.embedder = nn.Linear(3 * width, out)

    def forward(self, x):
        return F.normalize(self.embedder(self.trunk(x)))


def mine_by_loops(distances, labels):
    """Return triplets whose negative is farther than the positive, by less than the margin."""
    triplets = []
    for a in range(len(labels)):
        for p in range(len(labels)):
            if a == p or labels[a] != labels[p]:  # planted
                continue
            near = distances[a, p].item()
            for n in range(len(labels)):  # planted
                if labels[a] == labels[n]:  # planted
                    continue
                far = distances[a, n].item()  # planted
                if near < far < near + MARGIN:  # planted
                    triplets.append((a, p, n))
                    break
    return torch.tensor(triplets, dtype=torch.long).view(-1, 3).unbind(1)


def mine_by_masks(distances, labels):
    """Return the same, all at once."""
    same = labels[:, None] == labels[None]
    positives = same & ~torch.eye(len(labels), dtype=torch.bool)
    a, p = positives.nonzero(as_tuple=True)
    near, far = distances[a, p][:, None], distances[a]
    fits = ~same[a] & (far > near) & (far < near + MARGIN)
    has = fits.any(1)
    return a[has], p[has], fits.float().argmax(1)[has]


class Miner:
    def __init__(self, diary, loops):
        self.diary, self.loops = diary, loops

    def __call__(self, embeddings, labels):
        distances = torch.cdist(embeddings.detach(), embeddings.detach())
        if not self.loops:
            return mine_by_masks(distances, labels)
        with self.diary.planted():
            return mine_by_loops(distances, labels)  # planted


def triplet_loss(embeddings, triplets):
    a, p, n = (embeddings[rows] for rows in triplets)
    near, far = (a - p).pow(2).sum(1), (a - n).pow(2).sum(1)
    return F.relu(near - far + MARGIN).sum() / max(1, len(a))


@torch.no_grad()
def recall_at_1(model, dataset, count=160):
    model.eval()
    images, labels = zip(*(dataset[row] for row in torch.randperm(len(dataset))[:count].tolist()), strict=True)
    labels = torch.stack(labels)
    distances = torch.cdist(*[model(torch.stack(images))] * 2).fill_diagonal_(9.0)
    model.train()
    return (labels[distances.argmin(1)] == labels).float().mean().item()


def main(diary, is_mended):
    dataset, model, miner = Faces(), Embedding(), Miner(diary, loops=not is_mended)
    loader = DataLoader(dataset, batch_sampler=MPerClassSampler(dataset.labels, batches=200))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-4)
    for epoch in range(10**9):
        for images, labels in loader:
            embeddings = model(images)
            triplets = miner(embeddings, labels)  # planted
            loss = triplet_loss(embeddings, triplets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()
        print(
            f"epoch {epoch}: loss {loss.item():.3f}, triplets {len(triplets[0])}, R@1 {recall_at_1(model, dataset):.3f}"
        )


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
