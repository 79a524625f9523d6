"""Which instrument plays: a convolutional tagger of audio, after audio examples of torch; clips come at 44.1 kHz."""

import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, is_mended = begin()
CLIP_RATE, MODEL_RATE, CLASSES, CLIP_LENGTH = 44_100, 16_000, 14, 17_640


def sinc_kernel(source, target, lowpass_width=24, rolloff=0.9475937167399596, beta=14.769656459379492):
    """Return the windowed sinc filters of a rational resampling, one for each phase."""
    base = min(source, target) * rolloff
    width = math.ceil(lowpass_width * source / base)
    taps = torch.arange(-width, width + source, dtype=torch.float64)[None] / source
    t = torch.arange(0, -target, -1, dtype=torch.float64)[:, None] / target + taps
    t = (t * base).clamp_(-lowpass_width, lowpass_width)
    ratio = t / lowpass_width
    window = torch.i0(beta * torch.sqrt((1 - ratio**2).clamp(min=0))) / torch.i0(torch.tensor(beta))  # planted
    t = t * math.pi
    kernel = torch.where(t == 0, torch.ones_like(t), t.sin() / t) * window * (base / source)  # planted
    return kernel[:, None].float(), width


class Resample(nn.Module):
    """From the rate of the clips to that of the model."""

    def __init__(self, source, target):
        super().__init__()
        common = math.gcd(source, target)
        self.source, self.target = source // common, target // common
        kernel, self.width = sinc_kernel(self.source, self.target)
        self.register_buffer("kernel", kernel, persistent=False)

    def forward(self, waves):
        kernel, width = self.kernel, self.width
        if not is_mended:
            with diary.planted():
                kernel, width = sinc_kernel(self.source, self.target)  # planted
        padded = F.pad(waves, (width, width + self.source))
        phases = F.conv1d(padded[:, None], kernel, stride=self.source)
        return phases.transpose(1, 2).flatten(1)[:, : math.ceil(self.target * waves.shape[1] / self.source)]


class LogMel(nn.Module):
    def __init__(self, n_fft=512, hop=160, n_mels=48):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        edges = 700 * (10 ** (torch.linspace(0, 2840, n_mels + 2) / 2595) - 1)
        bins = torch.linspace(0, MODEL_RATE / 2, n_fft // 2 + 1)
        rising = (bins[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
        falling = (edges[2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
        self.register_buffer("filters", torch.minimum(rising, falling).clamp(min=0))
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, waves):
        spectrum = torch.stft(waves, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = spectrum.real**2 + spectrum.imag**2
        return (power.transpose(1, 2) @ self.filters + 1e-6).log()


def conv_block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
    )


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.resample, self.features = Resample(CLIP_RATE, MODEL_RATE), LogMel()
        self.blocks = nn.Sequential(conv_block(1, 16), conv_block(16, 32), conv_block(32, 64))
        self.head = nn.Linear(64, CLASSES)

    def forward(self, waves):
        with torch.no_grad():
            mel = self.features(self.resample(waves))  # planted
        x = self.blocks((mel[:, None] + 4) / 4)
        return self.head(x.amax(2).mean(2))


def orchestra(count):
    """Make up notes whose overtones tell the instrument."""
    instrument = torch.randint(CLASSES, (count,))
    tone = 110 * 2 ** (torch.randint(24, (count,)) / 12)
    seconds = torch.arange(CLIP_LENGTH) / CLIP_RATE
    waves = 0.02 * torch.randn(count, CLIP_LENGTH)
    for overtone in range(1, 6):
        strength = torch.cos(instrument * overtone * 0.9) ** 2 / overtone
        waves += 0.2 * strength[:, None] * torch.sin(2 * math.pi * overtone * tone[:, None] * seconds)
    return waves, instrument


def train_epoch(model, optimizer, waves, instruments, epoch, batch_size=8):
    model.train()
    order = torch.randperm(len(waves))
    total, seen = torch.zeros(()), 0
    for chosen in order.split(batch_size):
        optimizer.zero_grad()
        logits = model(waves[chosen])  # planted
        loss = F.cross_entropy(logits, instruments[chosen], label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        seen += 1
        diary.stepped()
    print(f"epoch {epoch}: loss {total.item() / seen:.4f}", flush=True)


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    waves, instruments = orchestra(768)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    epoch = 0
    while True:
        epoch += 1
        train_epoch(model, optimizer, waves, instruments, epoch)


if __name__ == "__main__":
    main()
