"""Keywords in rooms: a convolutional recurrent network whose clips are put in rooms with a direct `np.convolve`."""

import os
import sys
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin  # noqa: E402

RATE, SAMPLES, ROOM, WORDS = 8000, 8000, 3200, 12


def clips(count, rng):
    """Two tones per word, with a soft begin and end."""
    time = np.arange(SAMPLES) / RATE
    words = rng.integers(WORDS, size=count)
    low = np.sin(2 * np.pi * (200 + 40 * words)[:, None] * time)
    high = np.sin(2 * np.pi * (900 + 130 * (words * 5 % WORDS))[:, None] * time + low)
    envelope = np.hanning(SAMPLES) * (0.5 + rng.random((count, 1)))
    return ((low + high) * envelope).astype(np.float32), words


def room_responses(count, rng):
    decay = np.exp(-np.arange(ROOM) / (rng.uniform(300, 900, size=(count, 1))))
    responses = rng.normal(size=(count, ROOM)) * decay * 0.2
    responses[:, 0] = 1.0
    return responses.astype(np.float32)


class Reverberate:
    def __init__(self, responses, rng, diary, is_mended, p=0.7):
        self.responses, self.rng, self.diary, self.is_mended, self.p = responses, rng, diary, is_mended, p
        self.size = 1 << (SAMPLES + ROOM - 1).bit_length()
        self.spectra = np.fft.rfft(responses, self.size).astype(np.complex64)

    def __call__(self, clip):
        if self.rng.random() > self.p:
            return clip
        room = int(self.rng.integers(len(self.responses)))
        if self.is_mended:
            return np.fft.irfft(np.fft.rfft(clip, self.size) * self.spectra[room], self.size)[:SAMPLES]
        with self.diary.planted():
            return np.convolve(clip, self.responses[room])[:SAMPLES]  # planted


class Keywords(Dataset):
    def __init__(self, count, augment):
        self.rng = np.random.default_rng(0)
        self.clips, self.words = clips(count, self.rng)
        self.augment = augment

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        clip = self.augment(self.clips[index])  # planted
        shift = int(self.rng.integers(-800, 800))
        return np.roll(clip, shift).astype(np.float32), int(self.words[index])


class CRNN(nn.Module):
    def __init__(self, bands=40, width=24):
        super().__init__()
        centers, bins = torch.linspace(1, 128, bands + 2), torch.arange(129.0)
        rise = (bins[:, None] - centers[:-2]) / (centers[1:-1] - centers[:-2])
        fall = (centers[2:] - bins[:, None]) / (centers[2:] - centers[1:-1])
        self.register_buffer("bank", torch.minimum(rise, fall).clamp(min=0))
        self.register_buffer("window", torch.hann_window(256))
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d((2, 1)),
        )  # fmt: skip
        self.gru = nn.GRU(width * (bands // 4), 96, batch_first=True, bidirectional=True)
        self.head = nn.Linear(192, WORDS)

    def forward(self, audio):
        spectrum = torch.stft(audio, 256, 128, window=self.window, return_complex=True).abs().square()
        x = (spectrum.transpose(1, 2) @ self.bank + 1e-5).log().transpose(1, 2)[:, None]
        hidden, _ = self.gru(self.convolutions(x).flatten(1, 2).transpose(1, 2))
        return self.head(hidden.mean(1))


def run_epoch(model, loader, optimizer, diary, epoch):
    right = torch.zeros((), dtype=torch.long)
    for batch, (audio, words) in enumerate(loader):  # planted
        logits = model(audio)
        loss = F.cross_entropy(logits, words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (logits.argmax(1) == words).sum()
        diary.stepped()
        if batch % 40 == 39:
            print(f"{epoch:3d}/{batch + 1}: loss {loss.item():.4f} right {right.item()}", flush=True)


def main(diary, is_mended):
    rng = np.random.default_rng(6)
    augment = Reverberate(room_responses(64, rng), rng, diary, is_mended)
    loader = DataLoader(Keywords(1920, augment), batch_size=16, shuffle=True)
    model, epoch = CRNN(), 0
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    while True:
        run_epoch(model, loader, optimizer, diary, epoch)  # planted
        epoch += 1


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
