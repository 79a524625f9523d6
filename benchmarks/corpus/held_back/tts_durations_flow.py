"""A text-to-speech prior in the style of Glow-TTS: affine couplings over mel frames, aligned to the text's states."""

import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SYMBOLS, MELS, HIDDEN = 48, 40, 64
UTTERANCES, BATCH = 200, 6


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, HIDDEN)
        layer = nn.TransformerEncoderLayer(HIDDEN, 4, 2 * HIDDEN, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.means, self.durations = nn.Linear(HIDDEN, MELS), nn.Linear(HIDDEN, 1)

    def forward(self, symbols):
        states = self.layers(self.embedding(symbols) * math.sqrt(HIDDEN))
        return self.means(states), self.durations(states.detach()).squeeze(-1)


class Coupling(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Conv1d(MELS // 2, HIDDEN, 1)
        self.convs = nn.ModuleList(nn.Conv1d(HIDDEN, 2 * HIDDEN, 5, padding=2) for _ in range(2))
        self.end = nn.Conv1d(HIDDEN, MELS, 1)
        nn.init.zeros_(self.end.weight)

    def forward(self, x):
        first, second = x.chunk(2, dim=1)
        hidden = self.start(first)
        for conv in self.convs:
            hidden = hidden + F.glu(conv(hidden), dim=1)
        shift, scale = self.end(hidden).chunk(2, dim=1)
        scale = torch.tanh(scale)
        return torch.cat([second * scale.exp() + shift, first], dim=1), scale.sum((1, 2))


def best_path_cells(scores):
    """Return the monotonic path of the highest score through (batch, text, frames), cell by cell."""
    paths = np.zeros(scores.shape, dtype=np.float32)
    for score, path in zip(scores, paths, strict=True):
        texts, frames = score.shape
        best = np.full((texts, frames), -1e9)
        for frame in range(frames):
            for text in range(max(0, texts + frame - frames), min(texts, frame + 1)):  # planted
                stay = best[text, frame - 1] if frame and text < frame else -1e9  # planted
                move = best[text - 1, frame - 1] if text else (0.0 if frame == 0 else -1e9)  # planted
                best[text, frame] = score[text, frame] + max(stay, move)  # planted
        text = texts - 1
        for frame in range(frames - 1, -1, -1):
            path[text, frame] = 1
            if text and (text == frame or best[text, frame - 1] < best[text - 1, frame - 1]):
                text -= 1
    return paths


def best_path_columns(scores):
    """Return the same path, a frame of the whole batch at a time."""
    batch, texts, frames = scores.shape
    best, moved = np.full((batch, texts), -1e9), np.zeros((frames, batch, texts), dtype=bool)
    best[:, 0] = scores[:, 0, 0]
    for frame in range(1, frames):
        moves = np.concatenate([np.full((batch, 1), -1e9), best[:, :-1]], axis=1)
        moved[frame] = best < moves
        best = scores[:, :, frame] + np.maximum(best, moves)
    paths, text, rows = np.zeros(scores.shape, dtype=np.float32), np.full(batch, texts - 1), np.arange(batch)
    for frame in range(frames - 1, -1, -1):
        paths[rows, text, frame] = 1
        text = text - ((text > 0) & (moved[frame, rows, text] | (text == frame)))
    return paths


class GlowPrior(nn.Module):
    def __init__(self, diary, is_mended):
        super().__init__()
        self.diary, self.is_mended = diary, is_mended
        self.encoder, self.flows = TextEncoder(), nn.ModuleList(Coupling() for _ in range(4))

    def align(self, latents, means):
        with torch.no_grad():
            scores = -0.5 * torch.cdist(means, latents.transpose(1, 2)).square()
        scores = scores.double().numpy()
        if self.is_mended:
            return torch.from_numpy(best_path_columns(scores))
        with self.diary.planted():
            paths = best_path_cells(scores)  # planted
        return torch.from_numpy(paths)

    def forward(self, symbols, mels):
        means, durations = self.encoder(symbols)
        latents, log_determinant = mels, 0.0
        for flow in self.flows:
            latents, scales = flow(latents)
            log_determinant = log_determinant + scales
        paths = self.align(latents, means)  # planted
        aligned = means.transpose(1, 2) @ paths
        likelihood = 0.5 * (latents - aligned).square().sum((1, 2)) - log_determinant
        duration_loss = F.mse_loss(durations, paths.sum(2).log1p())
        return likelihood.mean() / mels[0].numel(), duration_loss


def load_corpus():
    """Return (symbols, mels) of every utterance, sorted into groups of one length."""
    corpus = []
    for _ in range(UTTERANCES // BATCH):
        texts = int(torch.randint(48, 64, ()))
        mels = torch.randn(BATCH, MELS, 4 * texts).cumsum(2) * 0.1
        corpus.append((torch.randint(SYMBOLS, (BATCH, texts)), mels))
    return corpus


def main():
    diary, is_mended = begin()
    torch.manual_seed(11)
    torch.set_num_threads(1)
    corpus, model = load_corpus(), GlowPrior(diary, is_mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.9, 0.98))
    epoch = 0
    while True:
        for number in torch.randperm(len(corpus)).tolist():
            likelihood, duration_loss = model(*corpus[number])  # planted
            optimizer.zero_grad()
            (likelihood + duration_loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            diary.stepped()
        epoch += 1
        print(f"epoch {epoch}: mle {likelihood.item():.3f} duration {duration_loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
