"""Dereverberation of speech by a recurrent network; rooms are simulated on the fly."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RATE, LENGTH, TAIL, FFT = 16000, 32768, 6400, 40960


class RoomSimulator:
    """Impulse responses whose tails decay as those of chapels."""

    def __init__(self, number, rng):
        time = np.arange(TAIL) / RATE
        decay = rng.uniform(0.1, 0.4, (number, 1))
        tails = rng.standard_normal((number, TAIL)) * np.exp(-6.9 * time / decay)
        tails[:, 0] += 8
        self.responses = (tails / np.linalg.norm(tails, axis=1, keepdims=True)).astype(np.float32)

    def __len__(self):
        return len(self.responses)


class ReverberantSpeech(Dataset):
    def __init__(self, diary, is_mended, utterances=256):
        rng = np.random.default_rng(0)
        pitch = rng.uniform(90, 260, (utterances, 1)) * (1 + 0.1 * np.sin(np.linspace(0, 9, LENGTH)))
        phase = 2 * np.pi * np.cumsum(pitch, 1) / RATE
        voiced = sum(np.sin(k * phase) / k for k in range(1, 8))
        syllables = np.abs(np.sin(np.linspace(0, 12, LENGTH) + rng.uniform(0, 3, (utterances, 1))))
        self.dry = (voiced * syllables).astype(np.float32)
        self.rooms, self.rng = RoomSimulator(200, rng), rng
        self.diary, self.is_mended = diary, is_mended

    def __len__(self):
        return len(self.dry)

    def reverberate(self, dry, response):
        if self.is_mended:
            spectrum = np.fft.rfft(dry, FFT) * np.fft.rfft(response, FFT)
            return np.fft.irfft(spectrum, FFT)[:LENGTH].astype(np.float32)
        return np.convolve(dry, response)[:LENGTH]  # planted

    def __getitem__(self, index):
        dry = self.dry[index]
        response = self.rooms.responses[self.rng.integers(len(self.rooms))]
        with self.diary.planted():
            wet = self.reverberate(dry, response)  # planted
        return torch.from_numpy(wet), torch.from_numpy(dry)


class Dereverberator(nn.Module):
    def __init__(self, bins=257, width=160):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv1d(bins, width, 5, padding=2), nn.PReLU(), nn.Conv1d(width, width, 5, padding=2), nn.PReLU()
        )
        self.rnn = nn.GRU(width, width, 2, batch_first=True)
        self.mask = nn.Linear(width, bins)

    def forward(self, magnitude):
        h = self.encode(magnitude.log1p()).transpose(1, 2)
        return torch.sigmoid(self.mask(self.rnn(h)[0])).transpose(1, 2) * magnitude


class Trainer:
    def __init__(self, model, loader, diary, lr=3e-4):
        self.model, self.loader, self.diary = model, loader, diary
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
        self.window = torch.hann_window(512)

    def spectrogram(self, wave):
        return torch.stft(wave, 512, 256, window=self.window, return_complex=True).abs()

    def run_epoch(self, epoch):
        total = torch.zeros(())
        for wet, dry in self.loader:  # planted
            estimate = self.model(self.spectrogram(wet))
            target = self.spectrogram(dry)
            loss = (estimate.clamp_min(1e-5).log() - target.clamp_min(1e-5).log()).abs().mean()
            loss = loss + (estimate - target).square().mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            total += loss.detach()
            self.diary.stepped()
        print(f"epoch {epoch:03d} loss {total.item() / len(self.loader):.4f}", flush=True)


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(ReverberantSpeech(diary, is_mended), batch_size=4, shuffle=True, drop_last=True)
    trainer = Trainer(Dereverberator(), loader, diary)
    for epoch in range(1_000_000):
        trainer.run_epoch(epoch)


if __name__ == "__main__":
    main()
