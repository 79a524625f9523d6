"""A keyword spotter on spectrograms, in the style of torchaudio's examples; features come from a compressed cache."""

import io
import sys
import zlib
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CLIPS, SAMPLES, CLASSES = 64, 16_000, 12


class M5(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 16, 80, stride=16), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(4),
            nn.Conv1d(16, 16, 3), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(4),
            nn.Conv1d(16, 32, 3), nn.BatchNorm1d(32), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        )  # fmt: skip
        self.head = nn.Linear(32, CLASSES)

    def forward(self, waveform):
        return self.head(self.features(waveform).squeeze(-1))


class FeatureCache:
    def __init__(self, compressed):
        self.compressed = compressed
        self.clips = {}

    def put(self, key, waveform):
        if not self.compressed:
            self.clips[key] = waveform
            return
        buffer = io.BytesIO()
        torch.save(waveform, buffer)
        self.clips[key] = zlib.compress(buffer.getvalue(), 1)

    def get(self, key):
        if not self.compressed:
            return self.clips[key]
        raw = zlib.decompress(self.clips[key])  # planted
        return torch.load(io.BytesIO(raw), weights_only=True)


class Trainer:
    def __init__(self, diary, is_mended):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.diary, self.is_mended = diary, is_mended
        self.cache = FeatureCache(compressed=not is_mended)
        for key in range(CLIPS):
            self.cache.put(key, torch.randn(1, SAMPLES))
        self.labels = torch.randint(CLASSES, (CLIPS,))
        self.model = M5()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, weight_decay=1e-4)
        self.loss_fn = nn.CrossEntropyLoss()

    def load(self, keys):
        return torch.stack([self.cache.get(key) for key in keys])  # planted

    def train_one_epoch(self):
        for keys in torch.randperm(CLIPS).split(16):
            if self.is_mended:
                waveforms = self.load(keys.tolist())
            else:
                with self.diary.planted():
                    waveforms = self.load(keys.tolist())  # planted
            loss = self.loss_fn(self.model(waveforms), self.labels[keys])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.diary.stepped()
        return loss.item()

    def run(self):
        epoch = 0
        while True:
            loss = self.train_one_epoch()
            epoch += 1
            if epoch % 100 == 0:
                print(f"epoch {epoch}: {loss:.3f}", flush=True)


Trainer(*begin()).run()
