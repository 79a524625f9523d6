"""Tells juggling patterns apart by temporal shifts; a worker cuts the clips. Nothing is planted."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SEGMENTS, SIDE, PATTERNS = 8, 56, 6


class JugglingVideos(Dataset):
    """Videos of 48 small frames; a whole batch of clips at once."""

    def __init__(self, number=120, frames=48, canvas=64):
        self.patterns = torch.arange(number) % PATTERNS
        time = torch.arange(frames) / frames * 6.28
        axis = torch.arange(canvas)
        self.videos = torch.randint(0, 60, (number, frames, canvas, canvas), dtype=torch.uint8)
        for i, pattern in enumerate(self.patterns.tolist()):
            for ball in range(3):
                phase = time * (1 + pattern) + 2.1 * ball
                x = (canvas / 2 + 20 * phase.cos())[:, None, None]
                y = (canvas / 2 + 20 * (phase * (1 + pattern % 2)).sin())[:, None, None]
                spot = ((axis[None, :, None] - y).abs() < 4) & ((axis[None, None, :] - x).abs() < 4)
                self.videos[i][spot] = 230

    def __len__(self):
        return len(self.videos)

    def __getitem__(self, index):
        index = torch.tensor(index)
        length = self.videos.shape[1] // SEGMENTS
        frames = torch.arange(SEGMENTS) * length + torch.randint(length, (len(index), SEGMENTS))
        top, left = torch.randint(self.videos.shape[-1] - SIDE, (2,)).tolist()
        clips = self.videos[index[:, None], frames, top : top + SIDE, left : left + SIDE]
        return clips[:, :, None].float().div_(255).sub_(0.2), self.patterns[index]


class TemporalShift(nn.Module):
    """Moves an eighth of the channels one frame on, another one back."""

    def __init__(self, net, fold_div=8):
        super().__init__()
        self.net, self.fold_div = net, fold_div

    def forward(self, x):
        clips = x.unflatten(0, (-1, SEGMENTS))
        fold = clips.shape[2] // self.fold_div
        shifted = torch.zeros_like(clips)
        shifted[:, :-1, :fold] = clips[:, 1:, :fold]
        shifted[:, 1:, fold : 2 * fold] = clips[:, :-1, fold : 2 * fold]
        shifted[:, :, 2 * fold :] = clips[:, :, 2 * fold :]
        return self.net(shifted.flatten(0, 1))


class Bottleneck(nn.Module):
    def __init__(self, c1, c2, stride):
        super().__init__()
        self.conv1 = TemporalShift(nn.Conv2d(c1, c2, 3, stride, 1, bias=False))
        self.bn1, self.bn2 = nn.BatchNorm2d(c2), nn.BatchNorm2d(c2)
        self.conv2 = nn.Conv2d(c2, c2, 3, 1, 1, bias=False)
        self.downsample = nn.Sequential(nn.Conv2d(c1, c2, 1, stride, bias=False), nn.BatchNorm2d(c2))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(h + self.downsample(x))


class TSN(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 24, 5, 2, 2, bias=False), nn.BatchNorm2d(24), nn.ReLU(inplace=True))
        self.layers = nn.Sequential(Bottleneck(24, 24, 1), Bottleneck(24, 48, 2), Bottleneck(48, 96, 2))
        self.new_fc = nn.Sequential(nn.Dropout(0.5), nn.Linear(96, PATTERNS))

    def forward(self, clips):
        h = self.layers(self.stem(clips.flatten(0, 1))).mean((2, 3))
        return self.new_fc(h).unflatten(0, (-1, SEGMENTS)).mean(1)


def train(loader, model, criterion, optimizer, diary):
    model.train()
    losses, hits, seen = torch.zeros(()), torch.zeros(()), 0
    for clips, pattern in loader:
        output = model(clips)
        loss = criterion(output, pattern)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 20)
        optimizer.step()
        losses += loss.detach() * len(pattern)
        hits += (output.argmax(1) == pattern).sum()
        seen += len(pattern)
        diary.stepped()
    return losses.item() / seen, hits.item() / seen


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    videos = JugglingVideos()
    sampler = BatchSampler(RandomSampler(videos, num_samples=100 * len(videos), replacement=True), 6, drop_last=True)
    loader = DataLoader(videos, sampler=sampler, batch_size=None, num_workers=1, persistent_workers=True)
    model, criterion = TSN(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=5e-4)
    for epoch in range(1_000_000):
        loss, accuracy = train(loader, model, criterion, optimizer, diary)
        print(f"Epoch: [{epoch}] Loss {loss:.4f} Prec@1 {100 * accuracy:.2f}", flush=True)


if __name__ == "__main__":
    main()
