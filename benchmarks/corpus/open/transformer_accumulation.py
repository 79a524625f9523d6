"""A text classifier with gradient accumulation and a schedule, after Hugging Face's scripts. Nothing is planted."""

import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Classifier(nn.Module):
    def __init__(self, vocabulary=5_000, dim=96, labels=4):
        super().__init__()
        self.embeddings = nn.Embedding(vocabulary, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Linear(dim, labels)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, input_ids, labels):
        logits = self.classifier(self.encoder(self.embeddings(input_ids)).mean(1))
        return self.loss(logits, labels)


def cosine(step, warmup=100, total=1_000_000):
    return step / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * step / total))


def main():
    diary, _ = begin()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randint(5_000, (4096, 48)), torch.randint(4, (4096,)))
    train_dataloader = DataLoader(data, batch_size=16, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    scheduler = LambdaLR(optimizer, cosine)
    accumulation_steps, completed_steps = 4, 0
    for _ in range(1_000_000):
        for step, (input_ids, labels) in enumerate(train_dataloader, start=1):
            loss = model(input_ids, labels) / accumulation_steps
            loss.backward()
            if step % accumulation_steps == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                completed_steps += 1
                diary.stepped()
                if completed_steps % 100 == 0:
                    print(f"step {completed_steps} loss {loss.item() * accumulation_steps:.4f}", flush=True)


if __name__ == "__main__":
    main()
