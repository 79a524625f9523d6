"""Two voices told apart with a Conv-TasNet; the mixtures are made on the fly, and either order of the voices is right.

Nothing is planted: mixing whole batches takes little, and the loss of both orders comes from one matrix.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

RATE, SAMPLES, BATCH = 8000, 4800, 4


class Voices:
    """Harmonics over a gliding pitch, a minute per speaker."""

    def __init__(self, speakers=24, seconds=20):
        time = torch.arange(RATE * seconds) / RATE
        pitch = torch.linspace(90, 280, speakers)[:, None]
        glide = 1 + 0.1 * torch.sin(6.28 * 0.7 * time + torch.rand(speakers, 1) * 6)
        phase = 6.2832 * torch.cumsum(pitch * glide / RATE, 1)
        self.audio = sum(torch.rand(speakers, 1) / k * torch.sin(k * phase) for k in range(1, 8))
        self.audio *= (torch.sin(6.28 * 1.5 * time + torch.rand(speakers, 1) * 6) > -0.4).float()
        self.reach = torch.arange(SAMPLES)

    def batch(self):
        """Mixtures and their two sources, at levels of up to 5 dB apart."""
        first = torch.randint(len(self.audio), (BATCH, 1))
        second = (first + torch.randint(1, len(self.audio), (BATCH, 1))) % len(self.audio)
        speakers = torch.cat([first, second], 1)
        starts = torch.randint(self.audio.shape[1] - SAMPLES, (BATCH, 2))
        sources = self.audio[speakers[..., None], starts[..., None] + self.reach]
        gains = 10 ** (torch.empty(BATCH, 2, 1).uniform_(-2.5, 2.5) / 20)
        sources = gains * sources
        return sources.sum(1) + 0.01 * torch.randn(BATCH, SAMPLES), sources


class SeparableBlock(nn.Module):
    def __init__(self, channels, inner, dilation):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(channels, inner, 1), nn.PReLU(), nn.GroupNorm(1, inner),
            nn.Conv1d(inner, inner, 3, padding=dilation, dilation=dilation, groups=inner),
            nn.PReLU(), nn.GroupNorm(1, inner), nn.Conv1d(inner, channels, 1),
        )  # fmt: skip

    def forward(self, x):
        return x + self.body(x)


class ConvTasNet(nn.Module):
    def __init__(self, filters=96, kernel=20, channels=64, inner=128, repeats=1, blocks=5):
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, kernel, stride=kernel // 2, bias=False)
        self.bottleneck = nn.Sequential(nn.GroupNorm(1, filters), nn.Conv1d(filters, channels, 1))
        stack = (SeparableBlock(channels, inner, 2**i) for _ in range(repeats) for i in range(blocks))
        self.separator = nn.Sequential(*stack, nn.PReLU(), nn.Conv1d(channels, 2 * filters, 1))
        self.decoder = nn.ConvTranspose1d(filters, 1, kernel, stride=kernel // 2, bias=False)

    def forward(self, mixture):
        encoded = F.relu(self.encoder(mixture[:, None]))
        masks = torch.sigmoid(self.separator(self.bottleneck(encoded))).unflatten(1, (2, -1))
        parts = self.decoder((masks * encoded[:, None]).flatten(0, 1))
        return parts.view(len(mixture), 2, -1)


def si_snr(estimate, source):
    """In dB, for all pairs of the last but one dimension."""
    estimate = F.normalize(estimate - estimate.mean(-1, keepdim=True), dim=-1)
    source = F.normalize(source - source.mean(-1, keepdim=True), dim=-1)
    cosine = (estimate @ source.transpose(1, 2)).square()
    return 10 * torch.log10((cosine + 1e-8) / (1 - cosine + 1e-8))


def permutation_free(estimate, sources):
    pairs = si_snr(estimate, sources)
    straight = pairs.diagonal(dim1=1, dim2=2).mean(1)
    crossed = pairs.flip(2).diagonal(dim1=1, dim2=2).mean(1)
    return -torch.maximum(straight, crossed).mean()


def main(diary, log_every=50):
    torch.manual_seed(12)
    voices, model = Voices(), ConvTasNet()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=20)
    step, total = 0, torch.zeros(())
    while True:
        mixture, sources = voices.batch()
        loss = permutation_free(model(mixture), sources)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.detach()
        step += 1
        diary.stepped()
        if step % log_every == 0:
            mean = total.item() / log_every
            plateau.step(mean)
            total.zero_()
            print(f"step {step} SI-SNR {-mean:.2f} dB lr {optimizer.param_groups[0]['lr']:.1e}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(begin()[0])
