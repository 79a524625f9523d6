"""A detector of shapes whose sampler puts pictures of one aspect ratio together, by looking at each picture's record.

Complaint: facebookresearch/detectron2, issue 1613, "Bottleneck of dataloading": ``GroupedBatchSampler`` slows the training down, as it goes through
lists of ids in Python for each batch. Fix: the groups are made once, as arrays, and shuffled as a whole. The sampler here has the structure of
``detectron2.data.samplers.grouped_batch_sampler``, and two workers load.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

COUNT = 4096


class Records:
    def __init__(self):
        chance = np.random.default_rng(24)
        self.rows = [{"file": f"{n}.png", "size": tuple(chance.integers(20, 60, 2).tolist())} for n in range(COUNT)]

    def aspect(self, index):
        width, height = self.rows[index]["size"]
        return int(width > height)


class GroupedBatchSampler(Sampler):
    def __init__(self, records, batch_size, diary):
        self.records, self.batch_size, self.diary = records, batch_size, diary

    def __iter__(self):
        while True:
            with self.diary.planted():
                batch = self.pick()  # planted
            yield batch

    def pick(self):
        buffers = {0: [], 1: []}
        for index in torch.randperm(COUNT).tolist():  # planted
            buffer = buffers[self.records.aspect(index)]  # planted
            if index not in buffer:  # planted
                buffer.append(index)  # planted
        return max(buffers.values(), key=len)[: self.batch_size]


class GroupedOnce(Sampler):
    def __init__(self, records, batch_size):
        ratios = np.asarray([records.aspect(index) for index in range(COUNT)])
        self.groups, self.batch_size = [np.flatnonzero(ratios == group) for group in (0, 1)], batch_size

    def __iter__(self):
        chance = np.random.default_rng(25)
        while True:
            yield chance.choice(self.groups[chance.integers(2)], self.batch_size).tolist()


class Shapes(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return torch.full((1, 24, 24), index / COUNT), index % 3


def main():
    diary, is_mended = begin()
    records = Records()
    sampler = GroupedOnce(records, 24) if is_mended else GroupedBatchSampler(records, 24, diary)
    loader = DataLoader(Shapes(), batch_sampler=sampler, num_workers=1)
    model = nn.Sequential(
        nn.Conv2d(1, 24, 3),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(24, 24, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1536, 3),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for pictures, labels in loader:  # planted
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(24)
    torch.set_num_threads(1)
    main()
