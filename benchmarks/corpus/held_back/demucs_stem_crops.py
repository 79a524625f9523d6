"""Source separation as in Demucs: crops of four stems are read from WAV files, and mixed anew in each epoch."""

import random
import sys
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SOURCES = ("drums", "bass", "other", "vocals")
RATE = 16000
SEGMENT = RATE * 2 // 5


def write_tracks(root, n_tracks=12, seconds=75):
    rng = np.random.default_rng(8)
    t = np.arange(RATE * seconds) / RATE
    for number in range(n_tracks):
        folder = root / f"track{number:02d}"
        folder.mkdir()
        tempo, key = rng.uniform(1.5, 2.5), rng.uniform(50, 90)
        stems = {
            "drums": rng.standard_normal(len(t)) * np.exp(-12 * ((t * tempo) % 1)),
            "bass": np.sign(np.sin(2 * np.pi * key * t)) * 0.5,
            "other": np.sin(2 * np.pi * key * 4 * t) * np.sin(2 * np.pi * 0.3 * t),
            "vocals": np.sin(2 * np.pi * key * 6 * t + 3 * np.sin(2 * np.pi * 5 * t)),
        }
        for name, signal in stems.items():
            with wave.open(str(folder / f"{name}.wav"), "wb") as file:
                file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
                file.writeframes((signal * 9000).clip(-32768, 32767).astype("<i2").tobytes())


def to_float(frames):
    return torch.from_numpy(np.frombuffer(frames, dtype="<i2").astype(np.float32) / 32768)


def load_stem(path):
    with wave.open(str(path), "rb") as file:
        return to_float(file.readframes(file.getnframes()))  # planted


def load_segment(path, start, length):
    with wave.open(str(path), "rb") as file:
        file.setpos(start)
        return to_float(file.readframes(length))


class StemCrops(Dataset):
    """Random crops; each stem comes from a track of its own, as remixing does."""

    def __init__(self, root, diary, is_mended, per_epoch=512):
        self.folders = sorted(root.iterdir())
        with wave.open(str(self.folders[0] / "bass.wav"), "rb") as file:
            self.frames = file.getnframes()
        self.diary, self.is_mended, self.per_epoch = diary, is_mended, per_epoch

    def __len__(self):
        return self.per_epoch

    def __getitem__(self, index):
        stems = []
        for name in SOURCES:
            path = random.choice(self.folders) / f"{name}.wav"
            start = random.randrange(self.frames - SEGMENT)
            if self.is_mended:
                stem = load_segment(path, start, SEGMENT)
            else:
                with self.diary.planted():
                    stem = load_stem(path)[start : start + SEGMENT]  # planted
            stems.append(stem * random.uniform(0.25, 1.25) * random.choice((-1, 1)))
        return torch.stack(stems)


class HDemucs(nn.Module):
    """The time branch alone: strided convolutions with GLU, an LSTM between, skips."""

    def __init__(self, channels=24, depth=4, kernel=8, stride=4):
        super().__init__()
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        inner = 1
        for level in range(depth):
            outer = channels * 2**level // (1 if level < 3 else 2)
            self.encoder.append(
                nn.Sequential(
                    nn.Conv1d(inner, outer, kernel, stride, 2), nn.GELU(), nn.Conv1d(outer, 2 * outer, 1), nn.GLU(1)
                )
            )
            back = len(SOURCES) if level == 0 else inner
            up = nn.ConvTranspose1d(outer, back, kernel, stride, 2)
            self.decoder.insert(
                0,
                nn.Sequential(
                    nn.Conv1d(outer, 2 * outer, 3, 1, 1), nn.GLU(1), up, nn.Identity() if level == 0 else nn.GELU()
                ),
            )
            inner = outer
        self.lstm = nn.LSTM(inner, inner // 2, bidirectional=True, batch_first=True)

    def forward(self, mix):
        length = mix.shape[-1]
        scale = mix.std(dim=-1, keepdim=True) + 1e-5
        x, skips = mix / scale, []
        for layer in self.encoder:
            x = layer(x)
            skips.append(x)
        x = x + self.lstm(x.transpose(1, 2))[0].transpose(1, 2)
        for layer in self.decoder:
            skip = skips.pop()
            x = layer(F.pad(x, (0, skip.shape[-1] - x.shape[-1])) + skip)
        return F.pad(x, (0, length - x.shape[-1])) * scale


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp())
    write_tracks(root)
    loader = DataLoader(StemCrops(root, diary, is_mended), batch_size=6)
    model = HDemucs()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, betas=(0.9, 0.999))
    epoch = 0
    while True:
        model.train()
        total = 0.0
        for stems in loader:  # planted
            mix = stems.sum(dim=1, keepdim=True)
            loss = F.l1_loss(model(mix), stems)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            diary.stepped()
        epoch += 1
        print(f"epoch {epoch}: l1 {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
