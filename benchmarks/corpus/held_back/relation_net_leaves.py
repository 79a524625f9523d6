"""A relation network on leaf shapes, learned in episodes of a few classes that are drawn from the list of labels."""

import random
import sys
from collections import defaultdict
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CLASSES, PER_CLASS, SIZE, WAYS, SHOTS, QUERIES = 300, 80, 20, 10, 1, 2


def make_leaves():
    """Draw leaves, each class with lobes of its own."""
    generator = torch.Generator().manual_seed(8)
    axis = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    turn, radius = torch.atan2(y, x), torch.hypot(x, y)
    lobes = torch.randint(2, 9, (CLASSES, 1, 1, 1), generator=generator)
    depth = 0.3 * torch.rand(CLASSES, 1, 1, 1, generator=generator)
    tilt = 0.4 * torch.randn(CLASSES, PER_CLASS, 1, 1, generator=generator)
    edge = 0.6 + depth * torch.cos(lobes * (turn + tilt))
    images = (radius < edge).float()
    labels = [name for name in range(CLASSES) for _ in range(PER_CLASS)]
    return images.view(-1, 1, SIZE, SIZE), labels


class EpisodeSampler:
    """Yields the indices of an episode, class by class."""

    def __init__(self, labels, diary, is_mended):
        self.labels, self.diary = labels, diary
        self.classes = sorted(set(labels))
        self.by_class = None
        if is_mended:
            self.by_class = defaultdict(list)
            for index, label in enumerate(labels):
                self.by_class[label].append(index)

    def of_class(self, name):
        return [index for index, label in enumerate(self.labels) if label == name]  # planted

    def members(self, name):
        if self.by_class is not None:
            return self.by_class[name]
        with self.diary.planted():
            return self.of_class(name)  # planted

    def __iter__(self):
        while True:
            names = random.sample(self.classes, WAYS)
            chosen = [random.sample(self.members(name), SHOTS + QUERIES) for name in names]
            yield torch.tensor(chosen)


def block(channels_in, channels_out):
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.BatchNorm2d(channels_out), nn.ReLU(), nn.MaxPool2d(2)
    )


class RelationNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Sequential(block(1, width), block(width, width))
        self.relate = nn.Sequential(
            block(2 * width, width), nn.Flatten(), nn.Linear(width * 4, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, support, query):
        prototypes = self.embed(support.flatten(0, 1)).unflatten(0, support.shape[:2]).mean(1)
        queries = self.embed(query.flatten(0, 1))
        pairs = torch.cat(
            [
                prototypes.unsqueeze(0).expand(len(queries), -1, -1, -1, -1),
                queries.unsqueeze(1).expand(-1, len(prototypes), -1, -1, -1),
            ],
            2,
        )
        return self.relate(pairs.flatten(0, 1)).view(len(queries), len(prototypes))


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    images, labels = make_leaves()
    model = RelationNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2000, 0.5)
    target = torch.arange(WAYS).repeat_interleave(QUERIES)
    right = torch.zeros(())
    for episode, chosen in enumerate(EpisodeSampler(labels, diary, is_mended), start=1):
        batch = images[chosen]
        scores = model(batch[:, :SHOTS], batch[:, SHOTS:])
        loss = F.mse_loss(scores.sigmoid(), F.one_hot(target, WAYS).float())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        right += (scores.argmax(1) == target).float().mean()
        diary.stepped()
        if episode % 200 == 0:
            print(f"episode {episode} loss {loss.item():.4f} accuracy {right.item() / 200:.3f}", flush=True)
            right.zero_()


if __name__ == "__main__":
    main()
