"""A network that rates grasps in depth images, whose batches are prepared by a thread beside the training.

Complaint: BerkeleyAutomation/gqcnn, pull request 45, "Parallel data loading": the queue of prefetched batches is empty and the GPU starves. The author:
"The thread is basically just slowing us down because of the GIL, except for during reads, but for the rest of the pre-processing it isn't
parallelized." (dgl 867 and tensorpack 495 say the same of their threads.) Fix: prepare the batches in a process. Figure: "2x faster training time".

What the thread takes from the training is spread over all its operations: no clock of the program sees it, and the diary has no planted time.
"""

import multiprocessing
import os
import queue
import random
import sys
import threading
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BATCH, SIZE, RAYS = 32, 32, 24


class GraspPreparer:
    """Grasps on made depth images: noise, a mirror, dropped pixels, and the rim along rays from the center."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        generator = np.random.default_rng(seed)
        self.images = generator.gamma(2, 0.3, (256, SIZE, SIZE)).astype(np.float32)

    def rim_along(self, image, dx, dy):
        """Where the depth changes most along a ray."""
        x = y = SIZE / 2
        best, where, last = 0.0, 0, image[SIZE // 2][SIZE // 2]
        for step in range(SIZE // 2 - 1):
            x, y = x + dx, y + dy
            depth = image[int(y)][int(x)]
            if abs(depth - last) > best:
                best, where = abs(depth - last), step
            last = depth
        return where / SIZE

    def drop_pixels(self, rows):
        for _ in range(80):
            rows[self.random.randrange(SIZE)][self.random.randrange(SIZE)] = 0.0
        return rows

    def grasp(self):
        rows = self.images[self.random.randrange(256)].tolist()
        if self.random.random() < 0.5:
            rows = [row[::-1] for row in rows]
        rows = self.drop_pixels(rows)  # planted
        angles = [2 * np.pi * number / RAYS for number in range(RAYS)]
        rim = [self.rim_along(rows, float(np.cos(angle)), float(np.sin(angle))) for angle in angles]  # planted
        return rows, rim, float(sum(rim) / RAYS > 0.2)

    def batch(self):
        images, rims, labels = zip(*(self.grasp() for _ in range(BATCH)), strict=True)  # planted
        return np.array(images, dtype=np.float32)[:, None], np.array(rims, dtype=np.float32), np.array(labels)


def fill(batches, seed, parent):
    preparer = GraspPreparer(seed)
    while os.getpid() == parent or os.getppid() == parent:
        batches.put(preparer.batch())  # planted


class GQCNN(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        blocks = []
        for number in range(4):
            blocks += [nn.Conv2d(width if number else 1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            blocks += [nn.MaxPool2d(2)] if number % 2 else []
        self.image = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(width * 64, 128), nn.ReLU())
        self.pose = nn.Sequential(nn.Linear(RAYS, 16), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, images, rims):
        return self.head(torch.cat([self.image(images), self.pose(rims)], 1))[:, 0]


def start_prefetching(is_mended):
    if is_mended:
        batches = multiprocessing.Queue(16)
        multiprocessing.Process(target=fill, args=(batches, 1, os.getpid()), daemon=True).start()
    else:
        batches = queue.Queue(16)
        threading.Thread(target=fill, args=(batches, 1, os.getpid()), daemon=True).start()  # planted
    return batches


def main():
    diary, is_mended = begin()
    batches = start_prefetching(is_mended)
    model = GQCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
    while True:
        images, rims, labels = batches.get()
        ratings = model(torch.from_numpy(images), torch.from_numpy(rims))
        loss = nn.functional.binary_cross_entropy_with_logits(ratings, torch.from_numpy(labels).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(13)
    torch.set_num_threads(1)
    main()
