"""Spotting of keywords in clips of mixed sampling rates; the filter of the resampling is made for each clip."""

import functools
import math
import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

TARGET_RATE, SECONDS, WORDS = 16_000, 0.5, 10


def sinc_kernel(rate, lowpass_filter_width=6, rolloff=0.99):
    """Return the filters that make TARGET_RATE of a rate, one for each phase, and the stride."""
    common = math.gcd(rate, TARGET_RATE)
    old, new = rate // common, TARGET_RATE // common
    base = min(old, new) * rolloff
    width = math.ceil(lowpass_filter_width * old / base)
    index = torch.arange(-width, width + old, dtype=torch.float64)[None] / old
    times = torch.arange(0, -new, -1, dtype=torch.float64)[:, None] / new + index  # planted
    times = (times * base).clamp_(-lowpass_filter_width, lowpass_filter_width)  # planted
    window = torch.cos(times * math.pi / lowpass_filter_width / 2) ** 2  # planted
    kernels = torch.where(times == 0, 1.0, torch.sin(times * math.pi) / (times * math.pi))  # planted
    return (kernels * window * base / old).float()[:, None], old, width  # planted


def resample(clip, kernel, stride, width):
    padded = F.pad(clip, (width, width + stride))
    out = F.conv1d(padded[None, None], kernel, stride=stride).transpose(1, 2).reshape(-1)
    return out[: int(SECONDS * TARGET_RATE)]


class LogMel(nn.Module):
    def __init__(self, n_fft=400, hop=160, n_mels=40):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        edges = 700 * (10 ** (torch.linspace(0, 2840, n_mels + 2) / 2595) - 1)
        freq = torch.linspace(0, TARGET_RATE / 2, n_fft // 2 + 1)[None]
        low, mid, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
        slopes = torch.minimum((freq - low) / (mid - low), (high - freq) / (high - mid))
        self.register_buffer("filters", slopes.clamp(min=0))

    def forward(self, wave):
        spectrum = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log(self.filters @ spectrum.abs().square() + 1e-6)


class WordNet(nn.Sequential):
    def __init__(self, width=64, blocks=3):
        layers = [nn.Conv2d(1, width, (10, 4), (2, 4), (5, 1)), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        for _ in range(blocks):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, WORDS))


def record_clips(count):
    clips = []
    for number in range(count):
        rate = (44_100, 22_050)[number % 2]
        word = number % WORDS
        t = torch.arange(int(SECONDS * rate)) / rate
        wave = torch.sin(2 * math.pi * (300 + 150 * word) * t) + 0.3 * torch.randn(len(t))
        clips.append((wave, rate, word))
    return clips


def batches(clips, size):
    while True:
        order = torch.randperm(len(clips)).tolist()
        for begun in range(0, len(order) - size + 1, size):
            yield [clips[i] for i in order[begun : begun + size]]


def run(diary, is_mended):
    kernel_for = functools.cache(sinc_kernel) if is_mended else sinc_kernel
    front, net = LogMel(), WordNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for count, batch in enumerate(batches(record_clips(400), 12)):
        waves = []
        for wave, rate, _ in batch:
            with diary.planted():
                kernel, stride, width = kernel_for(rate)  # planted
            waves.append(resample(wave, kernel, stride, width))
        labels = torch.tensor([word for _, _, word in batch])
        logits = net(front(torch.stack(waves))[:, None])
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()
        if count % 50 == 0:
            print(f"batch {count}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    run(*begin())
