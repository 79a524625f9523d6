"""An audio spectrogram transformer that tells owls apart by their calls, read from recordings of 24 bits."""

import sys
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RATE, CROP, OWLS = 16000, 16000, 8


def write_recordings(folder, number=48, seconds=8):
    rng = np.random.default_rng(3)
    time = np.arange(RATE * seconds) / RATE
    for i in range(number):
        owl = i % OWLS
        call = np.sin(2 * np.pi * (220 + 70 * owl) * time) * (np.sin(2 * np.pi * (1 + 0.3 * owl) * time) > 0)
        sound = 0.5 * call + 0.1 * rng.standard_normal(len(time))
        samples = (sound.clip(-1, 1) * (2**23 - 1)).astype("<i4")
        raw = samples.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
        with wave.open(str(folder / f"owl{owl}_{i:03d}.wav"), "wb") as file:
            file.setparams((1, 3, RATE, 0, "NONE", "not compressed"))
            file.writeframes(raw)


class OwlCalls(Dataset):
    """Crops of a second; NumPy has no type of three bytes."""

    def __init__(self, folder, diary, is_mended):
        self.files = sorted(folder.glob("*.wav"))
        self.owls = [int(file.name[3]) for file in self.files]
        self.generator = np.random.default_rng(0)
        self.diary, self.is_mended = diary, is_mended

    def __len__(self):
        return len(self.files) * 8

    def decode(self, raw):
        if self.is_mended:
            padded = np.zeros((len(raw) // 3, 4), np.uint8)
            padded[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
            return (padded.view("<i4")[:, 0] >> 8).astype(np.float32) / 2**23
        values = [int.from_bytes(raw[i : i + 3], "little", signed=True) for i in range(0, len(raw), 3)]  # planted
        return np.array(values, dtype=np.float32) / 2**23  # planted

    def __getitem__(self, index):
        index %= len(self.files)
        with wave.open(str(self.files[index]), "rb") as file:
            file.setpos(int(self.generator.integers(file.getnframes() - CROP)))
            raw = file.readframes(CROP)
        with self.diary.planted():
            sound = self.decode(raw)  # planted
        return torch.from_numpy(sound), self.owls[index]


class SpectrogramTransformer(nn.Module):
    def __init__(self, dim=128, depth=2, heads=4):
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        self.patch = nn.Conv2d(1, dim, (16, 10), (16, 10))
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(torch.randn(1, 1 + 16 * 10, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, OWLS)

    def forward(self, sound):
        spectrum = torch.stft(sound, 512, 160, window=self.window, return_complex=True).abs()
        image = (spectrum[:, :256, :100] + 1e-4).log()[:, None]
        tokens = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(tokens), -1, -1), tokens], 1) + self.position
        return self.head(self.blocks(x)[:, 0])


def train_one_epoch(model, loader, optimizer, scheduler, diary):
    model.train()
    correct, seen = torch.zeros(()), 0
    for sound, owl in loader:  # planted
        logits = model(sound)
        loss = F.cross_entropy(logits, owl, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        correct += (logits.argmax(1) == owl).sum()
        seen += len(owl)
        diary.stepped()
    return correct.item() / seen


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_recordings(folder)
        loader = DataLoader(OwlCalls(folder, diary, is_mended), batch_size=12, shuffle=True, drop_last=True)
        model = SpectrogramTransformer()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.05, fused=True)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))
        for epoch in range(1_000_000):
            accuracy = train_one_epoch(model, loader, optimizer, scheduler, diary)
            print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
