"""A detector on sequences of frames, whose dataset keeps the annotations of all frames as a list of dictionaries.

Complaint: tier4/autoware-ml, pull request 78, "store annotations in a fork-shared serialized buffer to stop DataLoader OOM" (and pytorch 13246,
referit3d 5): each worker reads the objects of ``data_infos``, which changes their reference counts, so that each gets a copy of the pages of its own.
The memory of the workers grows until the kernel kills one, though nothing is kept. Fix: one buffer of pickled annotations, and offsets into it.

It costs memory and no time: the diary has no planted time.
"""

import pickle
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

FRAMES, QUEUE, POINTS = 500_000, 4, 256


def make_info(number, generator):
    """Return what the data set's file says of a frame."""
    x, y, angle = generator.normal(0, 20), generator.normal(0, 20), generator.uniform(-3, 3)
    return {
        "token": f"frame-{number:09d}",
        "scene": f"scene-{number // 40:06d}",
        "timestamp": 1_600_000_000.0 + number / 10,
        "ego": [float(x), float(y), float(angle)],
        "boxes": [float(value) for value in (x + 1, y - 2, 4.1, 1.9, angle)],
        "label": f"kind-{number % 7}",
    }


class ListOfInfos:
    def __init__(self, infos):
        self.data_infos = list(infos)

    def __getitem__(self, index):
        return self.data_infos[index]  # planted


class SerializedInfos:
    def __init__(self, infos):
        parts = [pickle.dumps(info) for info in infos]
        self.ends = np.cumsum([len(part) for part in parts])
        self.buffer = np.frombuffer(b"".join(parts), dtype=np.uint8)

    def __getitem__(self, index):
        first = self.ends[index - 1] if index else 0
        return pickle.loads(memoryview(self.buffer[first : self.ends[index]]))  # noqa: S301 - its own bytes


class Frames(Dataset):
    def __init__(self, infos):
        self.infos = infos

    def __len__(self):
        return FRAMES

    def queue_of(self, index):
        """Return the frame and those before it in its scene."""
        frames = [self.infos[max(index - back, 0)] for back in range(QUEUE)]  # planted
        return [one for one in frames if one["scene"] == frames[0]["scene"]]

    def __getitem__(self, index):
        queue = self.queue_of(index)  # planted
        generator = np.random.default_rng(index)
        points = generator.normal(size=(QUEUE, POINTS, 3)).astype(np.float32)
        for place, info in enumerate(queue):
            x, y, angle = info["ego"]
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], dtype=np.float32)
            points[place, :, :2] = points[place, :, :2] @ turn + np.array([x, y], dtype=np.float32) / 50
        return points, np.array(queue[0]["boxes"], dtype=np.float32), int(queue[0]["label"][-1])


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU())
        self.time = nn.GRU(128, 128, batch_first=True)
        self.box, self.kind = nn.Linear(128, 5), nn.Linear(128, 7)

    def forward(self, points):
        frames = self.points(points).amax(2)
        states, _ = self.time(frames)
        return self.box(states[:, -1]), self.kind(states[:, -1])


def main():
    diary, is_mended = begin()
    generator = np.random.default_rng(12)
    infos = (make_info(number, generator) for number in range(FRAMES))
    dataset = Frames((SerializedInfos if is_mended else ListOfInfos)(infos))
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    while True:
        for points, boxes, labels in loader:
            predicted, kinds = model(points)
            loss = nn.functional.l1_loss(predicted, boxes) + nn.functional.cross_entropy(kinds, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(12)
    torch.set_num_threads(1)
    main()
