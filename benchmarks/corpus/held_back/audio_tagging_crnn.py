"""Tagging of sounds by a convolutional and recurrent network over spectrograms, several tags to a clip.

Nothing is planted: clips are mixed and shifted anew each time, so that their spectrograms cannot be kept.
"""

import math
import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RATE, LENGTH, TAGS, BATCH = 8000, 8000, 12, 16


class Sounds:
    """One tag a clip; a training example is two clips, of which the second is weaker and begins at another place."""

    def __init__(self, count):
        t = torch.arange(LENGTH) / RATE
        self.tags = torch.arange(count) % TAGS
        pitch = 200 + 220 * self.tags[:, None] + 20 * torch.rand(count, 1)
        self.waves = torch.sin(2 * math.pi * pitch * t) * torch.exp(-3 * t) + 0.05 * torch.randn(count, LENGTH)

    def mixed(self, size):
        first, second = torch.randint(len(self.waves), (2, size))
        shift = int(torch.randint(LENGTH, ()))
        gain = torch.rand(size, 1)
        waves = self.waves[first] + gain * torch.roll(self.waves[second], shift, 1)
        target = F.one_hot(self.tags[first], TAGS) | F.one_hot(self.tags[second], TAGS)
        return waves, target.float()


class Spectrogram(nn.Module):
    def __init__(self, n_fft=256, hop=128, n_mels=48):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        top = 2595 * math.log10(1 + RATE / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, n_mels + 2) / 2595) - 1)
        bins = torch.linspace(0, RATE / 2, n_fft // 2 + 1)
        rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
        self.register_buffer("mel", torch.minimum(rising, falling).clamp(min=0))

    def forward(self, waves):
        spectrum = torch.stft(waves, self.n_fft, self.hop, window=self.window, return_complex=True)
        mel = torch.log(self.mel @ (spectrum.real.square() + spectrum.imag.square()) + 1e-5)
        return mel[:, None]


def hide(mel, most=8):
    """Hide a band of pitches and a span of time of the batch."""
    for dim in (2, 3):
        width = int(torch.randint(1, most, ()))
        start = int(torch.randint(mel.shape[dim] - width, ()))
        mel.narrow(dim, start, width).zero_()
    return mel


class CRNN(nn.Module):
    def __init__(self, width=32, hidden=96):
        super().__init__()
        self.front = Spectrogram()
        self.norm = nn.BatchNorm2d(1)
        layers, n_in = [], 1
        for n_out in (width, 2 * width, 2 * width):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU()]
            layers += [nn.AvgPool2d((2, 2) if n_in == 1 else (2, 1))]
            n_in = n_out
        self.convs = nn.Sequential(*layers)
        self.rnn = nn.GRU(2 * width * 6, hidden, batch_first=True, bidirectional=True)
        self.attention, self.tags = nn.Linear(2 * hidden, TAGS), nn.Linear(2 * hidden, TAGS)

    def forward(self, waves):
        with torch.no_grad():
            mel = self.front(waves)
        mel = self.norm(mel)
        x = self.convs(hide(mel) if self.training else mel)
        x, _ = self.rnn(x.flatten(1, 2).transpose(1, 2))
        weight = self.attention(x).softmax(1)
        return (weight * self.tags(x)).sum(1)


@torch.inference_mode()
def precision(model, sounds):
    """How many of the two strongest tags are right, over a few batches."""
    model.eval()
    right = 0.0
    for _ in range(4):
        waves, target = sounds.mixed(BATCH)
        right += target.gather(1, model(waves).topk(2).indices).mean().item() / 4
    model.train()
    return right


if __name__ == "__main__":
    diary, _ = begin()
    torch.set_num_threads(1)
    torch.manual_seed(60)
    train_set, test_set, model = Sounds(1200), Sounds(240), CRNN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    cycle = torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-4, 1e-3, 500, cycle_momentum=False)
    step = 0
    while True:
        waves, target = train_set.mixed(BATCH)
        loss = F.binary_cross_entropy_with_logits(model(waves), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        cycle.step()
        step += 1
        diary.stepped()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} precision {precision(model, test_set):.3f}", flush=True)
