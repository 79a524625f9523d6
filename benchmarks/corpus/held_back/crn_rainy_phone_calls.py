"""Phone calls freed of the noise of rain by a convolutional recurrent network, in the style of DeepXi and DCCRN.

Nothing is planted.
"""

import math
import sys
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RATE, SAMPLES, CALLS, RAINS, BATCH = 8000, 8000, 120, 40, 6
N_FFT, HOP = 256, 128


def synthesize_calls():
    """Return something like voices: harmonics of a gliding pitch, in syllables."""
    seconds = torch.arange(SAMPLES) / RATE
    pitch = 110 + 120 * torch.rand(CALLS, 1) + 15 * torch.sin(2 * math.pi * 2.5 * seconds + 6 * torch.rand(CALLS, 1))
    phase = 2 * math.pi * torch.cumsum(pitch, dim=1) / RATE
    syllables = torch.sin(2 * math.pi * (3 + 2 * torch.rand(CALLS, 1)) * seconds).clamp_min(0)
    voices = sum(torch.sin(k * phase) / k for k in range(1, 9))
    return 0.1 * voices * syllables


def synthesize_rain():
    drops = torch.randn(RAINS, SAMPLES + 4) * (torch.rand(RAINS, SAMPLES + 4) < 0.1)
    return drops.unfold(1, 5, 1).mean(dim=2)


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs, *, up=False):
        super().__init__()
        kind = nn.ConvTranspose2d if up else nn.Conv2d
        self.conv = kind(inputs, outputs, (5, 3), (2, 1), (2, 1))
        self.norm, self.act = nn.BatchNorm2d(outputs), nn.PReLU()

    def forward(self, x):
        return self.act(self.norm(self.conv(x)))


class CRN(nn.Module):
    """Estimates a mask of real and imaginary parts."""

    def __init__(self, channels=(2, 12, 24, 32)):
        super().__init__()
        pairs = list(pairwise(channels))
        self.encoders = nn.ModuleList(ConvBlock(one, two) for one, two in pairs)
        self.decoders = nn.ModuleList(ConvBlock(2 * two, max(one, 8), up=True) for one, two in reversed(pairs))
        fix = [nn.Conv2d(max(one, 8), one, 1) for one, _ in reversed(pairs)]
        self.fixes = nn.ModuleList(fix)
        self.rnn = nn.GRU(channels[-1] * 17, 128, batch_first=True)
        self.back = nn.Linear(128, channels[-1] * 17)
        self.register_buffer("window", torch.hann_window(N_FFT))

    def forward(self, waves):
        spectrum = torch.stft(waves, N_FFT, HOP, window=self.window, return_complex=True)
        x = torch.view_as_real(spectrum).permute(0, 3, 1, 2)
        skips = []
        for encoder in self.encoders:
            x = encoder(x)
            skips.append(x)
        batch, channels, bands, frames = x.shape
        hidden, _ = self.rnn(x.flatten(1, 2).transpose(1, 2))
        x = self.back(hidden).transpose(1, 2).view(batch, channels, bands, frames)
        for decoder, fix in zip(self.decoders, self.fixes, strict=True):
            x = fix(decoder(torch.cat([x, skips.pop()], dim=1)))
        mask = torch.view_as_complex(x.permute(0, 2, 3, 1).contiguous())
        return torch.istft(spectrum * mask, N_FFT, HOP, window=self.window, length=waves.shape[1])


def si_snr(made, wanted):
    made, wanted = made - made.mean(1, keepdim=True), wanted - wanted.mean(1, keepdim=True)
    scale = (made * wanted).sum(1, keepdim=True) / (wanted.square().sum(1, keepdim=True) + 1e-8)
    target = scale * wanted
    return 10 * torch.log10(target.square().sum(1) / ((made - target).square().sum(1) + 1e-8) + 1e-8)


class Solver:
    def __init__(self, diary):
        self.diary = diary
        self.calls, self.rains = synthesize_calls(), synthesize_rain()
        self.model = CRN()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=6e-4, fused=True)

    def mix(self, chosen):
        clean = self.calls[chosen]
        rain = self.rains[torch.randint(RAINS, (len(chosen),))]
        loudness = 10 ** (-torch.rand(len(chosen), 1))
        return clean + loudness * rain, clean

    def run_one_epoch(self):
        self.model.train()
        total = torch.zeros(())
        for chosen in torch.randperm(CALLS).split(BATCH):
            noisy, clean = self.mix(chosen)
            loss = -si_snr(self.model(noisy), clean).mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5)
            self.optimizer.step()
            total += loss.detach()
            self.diary.stepped()
        return total.item() * BATCH / CALLS

    def train(self):
        for epoch in range(10**6):
            loss = self.run_one_epoch()
            if epoch % 5 == 0:
                print(f"Epoch {epoch} | Loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(27)
    torch.set_num_threads(1)
    Solver(begin()[0]).train()
