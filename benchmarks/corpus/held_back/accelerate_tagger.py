"""A tagger of words as Accelerate's examples train one.

Scores of each class are counted word by word in Python after each batch.
"""

import sys
from collections import Counter
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG")


class Sentences(Dataset):
    def __init__(self, count=2000, length=160):
        generator = torch.Generator().manual_seed(9)
        self.words = torch.randint(1000, (count, length), generator=generator)
        self.tags = self.words % len(TAGS)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.tags[index]}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.encoder = nn.Sequential(nn.Conv1d(64, 64, 1), nn.ReLU())
        self.classifier = nn.Linear(64, len(TAGS))

    def forward(self, input_ids, labels):
        logits = self.classifier(self.encoder(self.embed(input_ids).transpose(1, 2)).transpose(1, 2))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class ClassScores:
    def __init__(self):
        self.hits, self.guessed, self.there = Counter(), Counter(), Counter()

    def add_batch(self, predictions, references):
        for guessed, true in zip(predictions, references, strict=False):
            for one, other in zip(guessed, true, strict=False):
                self.guessed[TAGS[one]] += 1  # planted
                self.there[TAGS[other]] += 1  # planted
                if one == other:  # planted
                    self.hits[TAGS[one]] += 1  # planted

    def compute(self):
        return {tag: 2 * self.hits[tag] / max(1, self.guessed[tag] + self.there[tag]) for tag in TAGS}


def training_function(diary, is_mended):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(42)
    torch.set_num_threads(1)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    loader = DataLoader(Sentences(), shuffle=True, batch_size=32)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=1000)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(1_000_000):
        model.train()
        metric = ClassScores()
        for _step, batch in enumerate(loader):
            with accelerator.accumulate(model):
                loss, logits = model(**batch)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if not is_mended:
                with diary.planted():
                    predictions, references = accelerator.gather_for_metrics((logits.argmax(-1), batch["labels"]))
                    metric.add_batch(predictions.tolist(), references.tolist())  # planted
            diary.stepped()
        accelerator.print(f"epoch {epoch}:", metric.compute(), flush=True)


if __name__ == "__main__":
    training_function(*begin())
