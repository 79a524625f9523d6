"""Speaker verification with an additive angular margin over log spectra of made-up utterances.

Nothing is planted: a worker cuts the waves, spectra are made for whole batches, and trials are scored seldom.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SPEAKERS, RATE, SECONDS, BATCH = 40, 8000, 1.0, 24


class Utterances(Dataset):
    def __init__(self, per_speaker=12):
        generator = torch.Generator().manual_seed(0)
        t = torch.arange(int(RATE * SECONDS * 1.5)) / RATE
        self.waves = torch.empty(SPEAKERS * per_speaker, len(t))
        for i in range(len(self.waves)):
            pitch = 90 + 6 * (i // per_speaker) + 4 * torch.rand(1, generator=generator)
            overtones = torch.rand(6, 1, generator=generator) * torch.sin(
                6.2832 * pitch * torch.arange(1, 7)[:, None] * t
            )
            self.waves[i] = overtones.sum(0)
        self.speakers = torch.arange(SPEAKERS).repeat_interleave(per_speaker)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        size = int(RATE * SECONDS)
        start = int(torch.randint(0, self.waves.shape[1] - size, ()))
        return self.waves[i, start : start + size], self.speakers[i]


class LogSpectra(nn.Module):
    """Short-time spectra in bands, with stripes taken out while training."""

    def __init__(self, n_fft=256, hop=100, bands=48):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        centres = torch.linspace(0, 1, bands + 2).pow(1.6)[1:-1] * (n_fft // 2)
        slope = 1 - (torch.arange(n_fft // 2 + 1)[None] - centres[:, None]).abs() / 4
        self.register_buffer("bank", slope.clamp_min(0))

    @torch.no_grad()
    def forward(self, x):
        x = x + 0.02 * torch.randn_like(x) if self.training else x
        power = torch.stft(x, self.n_fft, self.hop, window=self.window, return_complex=True).abs().square()
        y = (self.bank @ power + 1e-5).log()
        y = y - y.mean(2, keepdim=True)
        if self.training:
            start = int(torch.randint(0, y.shape[1] - 6, ()))
            y[:, start : start + 6] = 0
        return y


class DilatedBlock(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.conv = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation)
        self.norm = nn.BatchNorm1d(c)
        self.squeeze = nn.Sequential(nn.Linear(c, c // 8), nn.ReLU(), nn.Linear(c // 8, c), nn.Sigmoid())

    def forward(self, x):
        y = self.norm(F.relu(self.conv(x)))
        return x + y * self.squeeze(y.mean(2))[..., None]


class SpeakerNet(nn.Module):
    def __init__(self, c=128, width=96):
        super().__init__()
        self.features, self.stem = LogSpectra(), nn.Conv1d(48, c, 5, padding=2)
        self.blocks = nn.Sequential(*(DilatedBlock(c, d) for d in (1, 2, 3, 4)))
        self.out = nn.Linear(2 * c, width)

    def forward(self, waves):
        y = self.blocks(F.relu(self.stem(self.features(waves))))
        return F.normalize(self.out(torch.cat([y.mean(2), (y.var(2) + 1e-5).sqrt()], 1)), dim=1)


class AngularMargin(nn.Module):
    def __init__(self, width=96, margin=0.2, scale=30.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SPEAKERS, width))
        self.margin, self.scale = margin, scale

    def forward(self, embedded, speakers):
        cosine = F.linear(embedded, F.normalize(self.weight, dim=1)).clamp(-0.999, 0.999)
        angle = cosine.acos() + self.margin * F.one_hot(speakers, SPEAKERS)
        return F.cross_entropy(self.scale * angle.cos(), speakers)


@torch.inference_mode()
def equal_error_rate(net, data):
    net.eval()
    embedded = torch.cat([net(part) for part in data.waves[::4, : int(RATE * SECONDS)].split(60)])
    speakers = data.speakers[::4]
    net.train()
    scores, same = (embedded @ embedded.T).flatten(), (speakers[:, None] == speakers[None]).flatten()
    same = same[scores.argsort(descending=True)]
    missed = 1 - same.cumsum(0) / same.sum()
    false = (~same).cumsum(0) / (~same).sum()
    return false[(missed - false).abs().argmin()].item()


def main():
    diary, _ = begin()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = Utterances()
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True)
    net, criterion = SpeakerNet(), AngularMargin()
    optimizer = torch.optim.SGD([*net.parameters(), *criterion.parameters()], 0.02, momentum=0.9, weight_decay=1e-4)
    epoch = 0
    while True:
        for waves, speakers in loader:
            loss = criterion(net(waves), speakers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()
        epoch += 1
        if epoch % 10 == 0:
            print(f"epoch {epoch} loss {loss.item():.3f} eer {equal_error_rate(net, data):.3f}", flush=True)


if __name__ == "__main__":
    main()
