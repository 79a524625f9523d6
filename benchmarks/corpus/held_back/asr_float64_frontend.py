"""A transformer that hears spoken digits: NumPy's window and filters turn the whole front end into float64.

The clock times the front end; about half of its time is the double precision's.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RATE, SECONDS, BATCH = 16_000, 3, 8
FRAME, HOP, FFT, MELS = 400, 160, 1024, 80
BLANK, DIGITS = 0, 10


def mel_filters():
    """Triangles on the mel scale, (FFT // 2 + 1, MELS), float64."""
    top = 2595 * math.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, MELS + 2) / 2595) - 1)
    frequencies = np.linspace(0, RATE / 2, FFT // 2 + 1)[:, None]
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(rising, falling))


class FilterBank:
    """Log mel spectra of a batch of waves, with noise against the logarithm of nothing (dither)."""

    def __init__(self, diary, is_single):
        self.diary = diary
        self.window, self.filters = torch.from_numpy(np.hanning(FRAME)), torch.from_numpy(mel_filters())
        self.dct = torch.from_numpy(np.cos(np.pi / MELS * np.outer(np.arange(MELS) + 0.5, np.arange(MELS))))
        if is_single:
            self.window, self.filters, self.dct = self.window.float(), self.filters.float(), self.dct.float()
        self.is_single = is_single

    def extract(self, waves):
        frames = waves.unfold(1, FRAME, HOP)
        frames = (frames - frames.mean(-1, keepdim=True)) * self.window  # planted
        spectrum = torch.fft.rfft(frames, n=FFT)  # planted
        power = spectrum.real**2 + spectrum.imag**2  # planted
        mels = (power @ self.filters + 1e-6).log()  # planted
        cepstra = (mels @ self.dct).float()  # planted
        return (cepstra - cepstra.mean(1, keepdim=True)) / (cepstra.std(1, keepdim=True) + 1e-5)

    def __call__(self, waves):
        if self.is_single:
            return self.extract(waves)
        with self.diary.planted():
            return self.extract(waves)  # planted


class Recordings:
    """Waves of two tones for each digit, some digits one after the other."""

    def __init__(self):
        at = torch.arange(RATE * SECONDS // 6) / RATE
        low, high = 300 + 60 * torch.arange(DIGITS), 900 + 170 * torch.arange(DIGITS)
        self.tones = sum(torch.sin(2 * math.pi * one[:, None] * at) for one in (low, high)) * torch.hann_window(len(at))

    def batch(self):
        digits = torch.randint(DIGITS, (BATCH, 6))
        waves = self.tones[digits].flatten(1) + 0.1 * torch.randn(BATCH, RATE * SECONDS)
        return waves, digits + 1


class ConvSubsampling(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv1d(MELS, width, 3, 2, 1), nn.GELU(), nn.Conv1d(width, width, 3, 2, 1), nn.GELU()
        )

    def forward(self, x):
        return self.convs(x.transpose(1, 2)).transpose(1, 2)


def sinusoids(length, width):
    rates = torch.exp(-math.log(10_000) * torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class SpeechTransformer(nn.Module):
    def __init__(self, width=96, depth=3):
        super().__init__()
        self.subsample = ConvSubsampling(width)
        self.register_buffer("places", sinusoids(400, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(width, DIGITS + 1)

    def forward(self, features):
        x = self.subsample(features)
        return self.out(self.encoder(x + self.places[: x.shape[1]])).log_softmax(-1)


def noam(step, width=96, warmup=400):
    return width**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)


def main(diary, is_mended):
    recordings, model, frontend = Recordings(), SpeechTransformer(), FilterBank(diary, is_single=is_mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, noam)
    for step in range(1, 10**9):
        waves, targets = recordings.batch()
        features = frontend(waves)  # planted
        log_probs = model(features)
        lengths = torch.full((BATCH,), log_probs.shape[1]), torch.full((BATCH,), targets.shape[1])
        loss = F.ctc_loss(log_probs.transpose(0, 1), targets, *lengths, blank=BLANK)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        diary.stepped()
        if step % 100 == 0:
            print(f"step {step} | ctc {loss.item():.3f} | lr {scheduler.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
