"""wav2vec 2.0 on recordings of bats: the model picks the masked frames out of distractors. Nothing is planted."""

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CROP = 6400


def record_night(seconds, rate=16000):
    """Sweeps that fall in frequency, at random times, in the noise of a recorder; slowed down tenfold."""
    night = torch.randn(seconds * rate) * 0.02
    t = torch.arange(rate // 10) / rate
    for start in torch.randint(len(night) - len(t), (seconds * 4,)).tolist():
        high, low = 3000 + 3000 * torch.rand(1), 800 + 900 * torch.rand(1)
        phase = 2 * math.pi * (high * t - (high - low) * t**2 / 0.2)
        night[start : start + len(t)] += torch.rand(1) * torch.sin(phase) * torch.hann_window(len(t))
    return night


class Crops(Dataset):
    def __init__(self, night, per_epoch=1200):
        self.night, self.per_epoch = night, per_epoch

    def __len__(self):
        return self.per_epoch

    def __getitem__(self, index):
        start = int(torch.randint(len(self.night) - CROP, ()))
        crop = self.night[start : start + CROP]
        return (crop - crop.mean()) / (crop.std() + 1e-5)


class FeatureEncoder(nn.Module):
    """Frames of 160 samples, from strided convolutions."""

    def __init__(self, dim=64):
        super().__init__()
        shapes = [(1, dim, 10, 5), (dim, dim, 8, 4), (dim, dim, 4, 2), (dim, dim, 4, 2), (dim, dim, 2, 2)]
        self.layers = nn.ModuleList(nn.Conv1d(a, b, k, s, padding=(k - s) // 2, bias=False) for a, b, k, s in shapes)
        self.norm = nn.GroupNorm(dim, dim)

    def forward(self, wave):
        x = wave[:, None]
        for number, layer in enumerate(self.layers):
            x = layer(x)
            x = F.gelu(self.norm(x) if number == 0 else x)
        return x.transpose(1, 2)


class GumbelQuantizer(nn.Module):
    def __init__(self, dim, groups=2, entries=32, out=64):
        super().__init__()
        self.groups, self.entries, self.temperature = groups, entries, 2.0
        self.scores = nn.Linear(dim, groups * entries)
        self.codes = nn.Parameter(torch.rand(groups, entries, out // groups))

    def forward(self, x):
        logits = self.scores(x).unflatten(-1, (self.groups, self.entries))
        usage = logits.softmax(-1).mean((0, 1))
        perplexity = (-(usage * (usage + 1e-7).log()).sum(-1)).exp().sum()
        chosen = F.gumbel_softmax(logits, self.temperature, hard=True)
        return torch.einsum("btge,gec->btgc", chosen, self.codes).flatten(2), perplexity


class Wav2Vec2(nn.Module):
    def __init__(self, dim=64, width=96, layers=3, distractors=20):
        super().__init__()
        self.distractors = distractors
        self.encoder, self.norm, self.project = FeatureEncoder(dim), nn.LayerNorm(dim), nn.Linear(dim, width)
        self.mask_embedding = nn.Parameter(torch.rand(width))
        self.position = nn.Conv1d(width, width, 15, padding=7, groups=8)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.05, "gelu", batch_first=True, norm_first=True)
        self.context = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.quantizer, self.final = GumbelQuantizer(dim), nn.Linear(width, 64)

    @staticmethod
    def mask(batch, frames, starts=3, span=5):
        """Return indices of masked frames, as many in each row, and the mask."""
        begins = torch.rand(batch, frames - span).topk(starts).indices
        mask = torch.zeros(batch, frames, dtype=torch.bool)
        mask.scatter_(1, (begins[..., None] + torch.arange(span)).flatten(1), True)
        return mask

    def forward(self, wave):
        z = self.norm(self.encoder(wave))
        mask = self.mask(*z.shape[:2])
        x = torch.where(mask[..., None], self.mask_embedding, self.project(z))
        x = x + F.gelu(self.position(x.transpose(1, 2))).transpose(1, 2)
        context = self.final(self.context(x))
        targets, perplexity = self.quantizer(z)
        rows, frames = mask.nonzero(as_tuple=True)
        others = torch.randint(z.shape[1] - 1, (len(rows), self.distractors))
        others = others + (others >= frames[:, None])  # any frame of the same recording but the right one
        candidates = torch.cat([targets[rows, frames][:, None], targets[rows[:, None], others]], dim=1)
        scores = F.cosine_similarity(context[rows, frames][:, None], candidates, dim=-1) / 0.1
        same = (candidates[:, 1:] == candidates[:, :1]).all(-1)
        scores = torch.cat([scores[:, :1], scores[:, 1:].masked_fill(same, -1e4)], dim=1)
        contrast = F.cross_entropy(scores, torch.zeros(len(rows), dtype=torch.long))
        entries = self.quantizer.groups * self.quantizer.entries
        return contrast + 0.1 * (entries - perplexity) / entries, (scores.argmax(1) == 0).float().mean()


def main():
    diary, _ = begin()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    loader = DataLoader(Crops(record_night(120)), batch_size=12, num_workers=1, persistent_workers=True, drop_last=True)
    model = Wav2Vec2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.98), weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 200))
    step = 0
    while True:
        for wave in loader:
            loss, accuracy = model(wave)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warm.step()
            model.quantizer.temperature = max(0.5, model.quantizer.temperature * 0.9995)
            step += 1
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.3f} accuracy {accuracy.item():.3f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
