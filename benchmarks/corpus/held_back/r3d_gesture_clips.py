"""Gestures told from short clips by a small 3D residual network, in the style of torchvision's video reference.

A clip is a few frames of a recording, and all frames of the recording are decoded to take them.
"""

import datetime
import io
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RECORDINGS, FRAMES, SIDE, GESTURES = 24, 60, 48, 8
CLIP, STRIDE, BATCH = 6, 3, 4


def record_gesture(rng):
    """Return a recording as cameras keep them: a list of JPEG frames."""
    center, speed = rng.uniform(12, 36, 2), rng.uniform(-0.6, 0.6, 2)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    backdrop = rng.uniform(0, 80, (SIDE, SIDE, 3))
    frames = []
    for number in range(FRAMES):
        place = center + number * speed + 6 * np.sin(number / 5)
        hand = np.exp(-((rows - place[0]) ** 2 + (columns - place[1]) ** 2) / 60)
        pixels = (backdrop + 170 * hand[..., None]).clip(0, 255).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=85)
        frames.append(buffer.getvalue())
    return frames


def decode(frame):
    return np.asarray(Image.open(io.BytesIO(frame)))


class GestureClips:
    def __init__(self, diary, is_mended):
        rng = np.random.default_rng(23)
        self.recordings = [record_gesture(rng) for _ in range(RECORDINGS)]
        self.labels = rng.integers(0, GESTURES, RECORDINGS)
        self.diary, self.is_mended = diary, is_mended

    def read_clip(self, recording, begin_at):
        wanted = slice(begin_at, begin_at + CLIP * STRIDE, STRIDE)
        if self.is_mended:
            return np.stack([decode(frame) for frame in recording[wanted]])
        with self.diary.planted():
            video = np.stack([decode(frame) for frame in recording])  # planted
        return video[wanted]

    def batches(self):
        """Yield an epoch of clips: N C T H W, from 0 to 1 after normalization."""
        order = random.sample(range(RECORDINGS), RECORDINGS)
        for first in range(0, RECORDINGS, BATCH):
            clips, labels = [], []
            for index in order[first : first + BATCH]:
                begin_at = random.randrange(FRAMES - CLIP * STRIDE)
                clips.append(self.read_clip(self.recordings[index], begin_at))  # planted
                labels.append(self.labels[index])
            video = torch.from_numpy(np.stack(clips)).permute(0, 4, 1, 2, 3)
            yield video.float().div_(255).sub_(0.45).div_(0.225), torch.tensor(labels)


class BasicBlock3d(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm3d(outputs)
        self.conv2 = nn.Conv3d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm3d(outputs)
        self.downsample = nn.Sequential(nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs))

    def forward(self, x):
        out = self.bn1(self.conv1(x)).relu_()
        return (self.bn2(self.conv2(out)) + self.downsample(x)).relu_()


class VideoResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, 24, (3, 5, 5), (1, 3, 3), (1, 2, 2), bias=False), nn.BatchNorm3d(24), nn.ReLU(inplace=True)
        )
        self.blocks = nn.Sequential(BasicBlock3d(24, 48, (1, 1, 1)), BasicBlock3d(48, 96, (2, 2, 2)))
        self.fc = nn.Linear(96, GESTURES)

    def forward(self, video):
        return self.fc(self.blocks(self.stem(video)).mean(dim=(2, 3, 4)))


def train_one_epoch(model, criterion, optimizer, clips, epoch, diary):
    model.train()
    started, correct, seen = time.time(), torch.zeros(()), 0
    for video, target in clips.batches():  # planted
        output = model(video)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (output.argmax(1) == target).sum()
        seen += len(target)
        diary.stepped()
    if epoch % 10 == 0:
        elapsed = datetime.timedelta(seconds=int(time.time() - started))
        print(f"Epoch: [{epoch}] loss: {loss.item():.4f} acc: {correct.item() / seen:.3f} time: {elapsed}", flush=True)


def main():
    diary, is_mended = begin()
    random.seed(4)
    torch.manual_seed(4)
    torch.set_num_threads(1)
    clips = GestureClips(diary, is_mended)
    model = VideoResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for epoch in range(10**6):
        train_one_epoch(model, nn.CrossEntropyLoss(), optimizer, clips, epoch, diary)


if __name__ == "__main__":
    main()
