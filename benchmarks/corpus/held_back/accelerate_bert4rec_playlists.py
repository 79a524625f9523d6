"""BERT4Rec on playlists under Accelerate: masked songs are guessed; a worker masks and pads. Nothing is planted."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Settings:
    songs: int = 1_800
    playlists: int = 20_000
    length: int = 40
    width: int = 96
    heads: int = 4
    layers: int = 2
    batch_size: int = 24
    masked: int = 8
    epochs: int = 1_000_000
    evaluate_every: int = 400


PAD, MASK, FIRST_SONG = 0, 1, 2


class Playlists(Dataset):
    """Playlists walk about in a genre; the last song of each is held out."""

    def __init__(self, settings, rng):
        genres = rng.integers(0, 60, settings.playlists)
        spread = rng.integers(0, settings.songs // 60, (settings.playlists, settings.length + 1))
        songs = FIRST_SONG + genres[:, None] * (settings.songs // 60) + np.sort(spread, axis=1)
        self.lengths = rng.integers(12, settings.length + 1, settings.playlists)
        self.histories = [row[:length] for row, length in zip(songs, self.lengths, strict=True)]
        self.held_out = songs[np.arange(len(songs)), self.lengths]

    def __len__(self):
        return len(self.histories)

    def __getitem__(self, index):
        return self.histories[index]


class MaskingCollator:
    def __init__(self, settings):
        self.settings = settings

    def pad(self, histories):
        rows = np.full((len(histories), self.settings.length), PAD, np.int64)
        for row, history in zip(rows, histories, strict=True):
            row[-len(history) :] = history
        return torch.from_numpy(rows)

    def __call__(self, histories):
        inputs = self.pad(histories)
        luck = torch.rand(inputs.shape).masked_fill(inputs == PAD, -1.0)
        luck[:, -1] += 0.5  # the last song is what is asked for later
        chosen = torch.zeros_like(inputs, dtype=torch.bool).scatter(1, luck.topk(self.settings.masked).indices, True)
        labels = torch.where(chosen, inputs, torch.full_like(inputs, -100))
        return {"inputs": inputs.masked_fill(chosen, MASK), "labels": labels}


class Bert4Rec(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.songs = nn.Embedding(FIRST_SONG + settings.songs, settings.width, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(settings.length, settings.width))
        layer = nn.TransformerEncoderLayer(
            settings.width, settings.heads, 4 * settings.width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, settings.layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(settings.width, settings.width), nn.GELU(), nn.LayerNorm(settings.width))
        self.bias = nn.Parameter(torch.zeros(FIRST_SONG + settings.songs))
        nn.init.normal_(self.songs.weight, std=0.02)

    def encode(self, inputs):
        return self.encoder(self.songs(inputs) + self.places, src_key_padding_mask=inputs == PAD)

    def forward(self, inputs, labels):
        masked = labels != -100
        hidden = self.head(self.encode(inputs)[masked])
        return F.cross_entropy(F.linear(hidden, self.songs.weight, self.bias), labels[masked])

    def scores(self, inputs):
        return F.linear(self.head(self.encode(inputs)[:, -1]), self.songs.weight, self.bias)


@torch.no_grad()
def hit_rate(model, playlists, collator, count=256, top=10):
    """Look whether the held-out song is among the first ten, for some playlists that are not full."""
    model.eval()
    picked = [i for i in range(count) if playlists.lengths[i] < collator.settings.length]
    histories = [np.append(playlists.histories[i], MASK) for i in picked]
    best = model.scores(collator.pad(histories)).topk(top).indices
    model.train()
    return (best == torch.from_numpy(playlists.held_out[picked])[:, None]).any(1).float().mean().item()


def main():
    diary, _ = begin()
    torch.set_num_threads(1)
    set_seed(21)
    settings = Settings()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=1)
    playlists, collator = Playlists(settings, np.random.default_rng(21)), MaskingCollator(settings)
    loader = DataLoader(
        playlists, settings.batch_size, shuffle=True, drop_last=True, collate_fn=collator,
        num_workers=1, persistent_workers=True,
    )  # fmt: skip
    model = Bert4Rec(settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, 1.0, total_iters=200)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    step, total = 0, torch.zeros(())
    for epoch in range(settings.epochs):
        for batch in loader:
            loss = model(**batch)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            total += loss.detach()
            step += 1
            diary.stepped()
            if step % 100 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {total.item() / 100:.4f}", flush=True)
                total.zero_()
            if step % settings.evaluate_every == 0:
                rate = hit_rate(accelerator.unwrap_model(model), playlists, collator)
                accelerator.print(f"step {step} HR@10 {rate:.4f}", flush=True)


if __name__ == "__main__":
    main()
