"""A classifier of emotions in short texts with a contrastive loss that knows how alike two labels are.

Complaint: varsha33/LCL_loss, issue 2, "Optimize the training speed": the weights of all pairs of a batch are put into ``weighted_mask`` one by one, by
Python loops over elements of tensors: "The for-loop is a bottleneck, which slows down the training speed." Fix: matrix operations. No figure is named.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Config:
    vocabulary: int = 2000
    length: int = 24
    emotions: int = 12
    width: int = 96
    batch_size: int = 64
    temperature: float = 0.3
    alpha: float = 0.5


def make_texts(config, count=8000):
    """Texts of words that hint at their emotion."""
    labels = torch.randint(config.emotions, (count,))
    words = torch.randint(config.vocabulary, (count, config.length))
    hints = labels[:, None] * 20 + torch.randint(20, (count, 4))
    words[:, :4] = hints
    return TensorDataset(words, labels)


class Encoder(nn.Module):
    def __init__(self, config, layers=2):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Parameter(torch.randn(config.length, config.width) * 0.02)
        block = nn.TransformerEncoderLayer(config.width, 4, 2 * config.width, dropout=0.1, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, layers)
        self.head = nn.Linear(config.width, config.emotions)
        self.project = nn.Linear(config.width, 64)

    def forward(self, words):
        pooled = self.blocks(self.words(words) + self.places).mean(1)
        return self.head(pooled), functional.normalize(self.project(pooled), dim=1)


class WeightingNetwork(nn.Module):
    """How much each label is confused with each other one, by a small network of its own."""

    def __init__(self, config):
        super().__init__()
        self.words = nn.EmbeddingBag(config.vocabulary, 32)
        self.head = nn.Linear(32, config.emotions)

    def forward(self, words):
        return self.head(self.words(words))


class PairLoops:
    def __call__(self, weights, labels):
        mask = torch.zeros(len(labels), len(labels))
        for row, weight in enumerate(weights):  # planted
            for column, label in enumerate(labels):  # planted
                mask[row, column] = weight[label]  # planted
        return mask


class PairMatrix:
    def __call__(self, weights, labels):
        return weights[:, labels]


class LabelContrastiveLoss:
    def __init__(self, config, mask_of, diary):
        self.temperature, self.mask_of, self.diary = config.temperature, mask_of, diary

    def __call__(self, features, labels, weights):
        with self.diary.planted():
            weighted_mask = self.mask_of(weights, labels)  # planted
        same = (labels[:, None] == labels[None]).float().fill_diagonal_(0)
        likeness = (features @ features.T / self.temperature).exp() * (1 - torch.eye(len(labels)))
        below = (likeness * weighted_mask).sum(1, keepdim=True) + 1e-6
        chances = (likeness * weighted_mask / below + 1e-6).log()
        return -(chances * same).sum(1).div(same.sum(1).clamp_min(1)).mean()


def main():
    diary, is_mended = begin()
    config = Config()
    loader = DataLoader(make_texts(config), batch_size=config.batch_size, shuffle=True, drop_last=True)
    model, weighting = Encoder(config), WeightingNetwork(config)
    contrast = LabelContrastiveLoss(config, PairMatrix() if is_mended else PairLoops(), diary)
    optimizer = torch.optim.AdamW([*model.parameters(), *weighting.parameters()], lr=3e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
    for epoch in range(10**6):
        right = 0
        for words, labels in loader:
            logits, features = model(words)
            guesses = weighting(words)
            weights = functional.softmax(guesses, 1).detach()
            entropy = functional.cross_entropy(logits, labels) + functional.cross_entropy(guesses, labels)
            loss = config.alpha * entropy + (1 - config.alpha) * contrast(features, labels, weights)  # planted
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            right += (logits.argmax(1) == labels).sum()
            diary.stepped()
        print(f"epoch {epoch}: {float(right) / len(loader.dataset):.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(14)
    torch.set_num_threads(1)
    main()
