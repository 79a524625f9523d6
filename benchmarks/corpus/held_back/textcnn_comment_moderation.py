"""A convolutional classifier of comments after Kim (2014), with a vocabulary, buckets of like lengths and a validation.

Nothing is planted: comments are numbered once, batches are padded at once, and validation is rare and small.
"""

import itertools
import random
import sys
from collections import Counter
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

LABELS = ("toxic", "insult", "spam")
BATCH_SIZE = 64
PAD, UNKNOWN = 0, 1


def write_comments(count, seed):
    """Return made-up comments with the labels that hold for each."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("aeioubdgklmnprst", k=draw.randint(2, 8))) for _ in range(6000)]
    cumulative = list(itertools.accumulate(1 / (rank + 5) for rank in range(len(words))))
    comments = []
    for _ in range(count):
        text = draw.choices(words, cum_weights=cumulative, k=draw.randint(8, 70))
        labels = [float(draw.random() < 0.15) for _ in LABELS]
        for place, label in enumerate(labels):
            if label:
                text[draw.randrange(len(text))] = words[-1 - place]
        comments.append((" ".join(text), labels))
    return comments


class Vocabulary:
    def __init__(self, texts, minimum=2):
        counts = Counter(word for text in texts for word in text.split())
        kept = [word for word, count in counts.most_common() if count >= minimum]
        self.numbers = {word: number for number, word in enumerate(kept, start=2)}

    def __len__(self):
        return len(self.numbers) + 2

    def encode(self, text):
        return torch.tensor([self.numbers.get(word, UNKNOWN) for word in text.split()])


class Comments(Dataset):
    """Numbered when it is made, not when an item is asked for."""

    def __init__(self, comments, vocabulary):
        self.items = [(vocabulary.encode(text), torch.tensor(labels)) for text, labels in comments]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class BucketSampler(Sampler):
    """Batches of like lengths, in a new order in each epoch."""

    def __init__(self, lengths, batch_size):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[at : at + batch_size] for at in range(0, len(order) - batch_size + 1, batch_size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(random.sample(self.batches, len(self.batches)))


def collate(items):
    ids, labels = zip(*items, strict=True)
    return pad_sequence(ids, batch_first=True, padding_value=PAD), torch.stack(labels)


class TextCNN(nn.Module):
    def __init__(self, words, size=96, filters=64, kernels=(3, 4, 5)):
        super().__init__()
        self.embed = nn.Embedding(words, size, padding_idx=PAD)
        self.convs = nn.ModuleList(nn.Conv1d(size, filters, kernel, padding=kernel // 2) for kernel in kernels)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(filters * len(kernels), len(LABELS))

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        pooled = [F.relu(conv(x)).amax(2) for conv in self.convs]
        return self.out(self.dropout(torch.cat(pooled, 1)))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = torch.zeros(len(LABELS))
    for ids, labels in loader:
        right += ((model(ids) > 0) == labels.bool()).float().sum(0)
    model.train()
    return right / len(loader.dataset)


def main():
    diary, _ = begin()
    torch.manual_seed(12)
    random.seed(12)
    torch.set_num_threads(1)
    comments = write_comments(9000, seed=12)
    train, held = comments[256:], comments[:256]
    vocabulary = Vocabulary(text for text, _ in train)
    dataset = Comments(train, vocabulary)
    sampler = BucketSampler([len(ids) for ids, _ in dataset.items], BATCH_SIZE)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
    held_loader = DataLoader(Comments(held, vocabulary), batch_size=128, collate_fn=collate)
    model = TextCNN(len(vocabulary))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1_000_000):
        total = torch.zeros(())
        for ids, labels in loader:
            loss = F.binary_cross_entropy_with_logits(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            diary.stepped()
        accuracy = validate(model, held_loader)
        shown = " ".join(f"{label} {value:.3f}" for label, value in zip(LABELS, accuracy.tolist(), strict=True))
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f} {shown}", flush=True)


if __name__ == "__main__":
    main()
