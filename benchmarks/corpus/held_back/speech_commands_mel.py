"""Keyword spotting: a trainer class, log-mel features made from waveforms on the fly, a small depthwise network."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SAMPLE_RATE, N_FFT, HOP, N_MELS, KEYWORDS = 8000, 1024, 160, 64, 12


def hz_to_mel(frequency):
    return 2595.0 * np.log10(1.0 + frequency / 700.0)


def mel_to_hz(mel):
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def mel_filterbank():
    """Return triangles of shape (N_MELS, N_FFT // 2 + 1)."""
    corners = mel_to_hz(np.linspace(hz_to_mel(20.0), hz_to_mel(SAMPLE_RATE / 2), N_MELS + 2))
    bank = np.zeros((N_MELS, N_FFT // 2 + 1), dtype=np.float32)
    for row in range(N_MELS):
        low, center, high = corners[row : row + 3]
        for column in range(N_FFT // 2 + 1):  # planted
            frequency = column * SAMPLE_RATE / N_FFT  # planted
            rising = (frequency - low) / (center - low)  # planted
            falling = (high - frequency) / (high - center)  # planted
            bank[row, column] = max(0.0, min(rising, falling))  # planted
    return torch.from_numpy(bank)


class LogMel:
    def __init__(self, diary, is_mended):
        self.diary = diary
        self.window = torch.hann_window(N_FFT)
        self.bank = mel_filterbank() if is_mended else None

    def filterbank(self):
        if self.bank is not None:
            return self.bank
        with self.diary.planted():
            return mel_filterbank()  # planted

    def __call__(self, waveforms):
        spectrum = torch.stft(waveforms, N_FFT, HOP, window=self.window, return_complex=True).abs().square()
        bank = self.filterbank()  # planted
        return (bank @ spectrum).clamp_min(1e-6).log()


class KeywordNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Conv2d(1, width, (10, 4), stride=2, padding=(5, 2))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, groups=width),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 1),
                nn.BatchNorm2d(width),
            )
            for _ in range(4)
        )
        self.classify = nn.Linear(width, KEYWORDS)

    def forward(self, features):
        x = self.stem(features.unsqueeze(1))
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.classify(x.mean((2, 3)))


class Trainer:
    def __init__(self, model, features, loader, diary):
        self.model, self.features, self.loader, self.diary = model, features, loader, diary
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 500, gamma=0.9)

    def training_step(self, waveforms, keywords):
        features = self.features(waveforms)  # planted
        logits = self.model(features)
        loss = F.cross_entropy(logits, keywords, label_smoothing=0.1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()

    def train(self):
        epoch = 0
        while True:
            total = torch.zeros(())
            for waveforms, keywords in self.loader:
                total += self.training_step(waveforms, keywords)
                self.diary.stepped()
            epoch += 1
            if epoch % 10 == 0:
                print(f"epoch {epoch}: train loss {total.item() / len(self.loader):.4f}", flush=True)


def main():
    diary, is_mended = begin()
    torch.manual_seed(17)
    torch.set_num_threads(1)
    clips = TensorDataset(torch.randn(384, SAMPLE_RATE), torch.randint(KEYWORDS, (384,)))
    loader = DataLoader(clips, batch_size=12, shuffle=True, drop_last=True)
    Trainer(KeywordNet(), LogMel(diary, is_mended), loader, diary).train()


if __name__ == "__main__":
    main()
