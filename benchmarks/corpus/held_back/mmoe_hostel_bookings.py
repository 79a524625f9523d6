"""Clicks and bookings of hostels by experts with a gate a task, after recommender zoos. Nothing is planted."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

FIELDS = {"traveller": 2000, "hostel": 1500, "city": 120, "month": 12, "party": 6}
NUMBERS = 10


class Features(nn.Module):
    """All fields in one table, each with an offset of its own."""

    def __init__(self, width):
        super().__init__()
        sizes = torch.tensor(list(FIELDS.values()))
        self.table = nn.Embedding(int(sizes.sum()), width)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes)
        nn.init.normal_(self.table.weight, std=0.05)

    def forward(self, fields, numbers):
        return torch.cat([self.table(fields + self.offsets).flatten(1), numbers], dim=1)


class Experts(nn.Module):
    """Experts of the same form, computed at once."""

    def __init__(self, count, inputs, hidden, outputs):
        super().__init__()
        self.first = nn.Parameter(torch.randn(count, inputs, hidden) * (2 / inputs) ** 0.5)
        self.second = nn.Parameter(torch.randn(count, hidden, outputs) * (2 / hidden) ** 0.5)

    def forward(self, x):
        hidden = F.relu(torch.matmul(x, self.first))
        return F.relu(torch.bmm(hidden, self.second)).transpose(0, 1)


class MMoE(nn.Module):
    def __init__(self, width=16, experts=6, hidden=160, outputs=64, tasks=2):
        super().__init__()
        inputs = len(FIELDS) * width + NUMBERS
        self.features = Features(width)
        self.experts = Experts(experts, inputs, hidden, outputs)
        self.gates = nn.Linear(inputs, tasks * experts)
        self.towers = nn.ModuleList(
            [nn.Sequential(nn.Linear(outputs, 64), nn.ReLU(), nn.Linear(64, 1)) for _ in range(tasks)]
        )

    def forward(self, fields, numbers):
        x = self.features(fields, numbers)
        gates = self.gates(x).unflatten(1, (len(self.towers), -1)).softmax(dim=2)
        mixed = gates @ self.experts(x)
        return torch.cat([tower(mixed[:, task]) for task, tower in enumerate(self.towers)], dim=1)


def impressions(count):
    """Impressions of hostels: whom they were shown to, whether they were clicked, and then booked."""
    fields = torch.stack([torch.randint(size, (count,)) for size in FIELDS.values()], dim=1)
    numbers = torch.randn(count, NUMBERS)
    fits = torch.cos(fields[:, 0] * 0.7 - fields[:, 1] * 0.3) + 0.5 * numbers[:, 0] - 0.5
    clicked = (fits + torch.randn(count) > 0).float()
    price = numbers[:, 1] + 0.4 * (fields[:, 3] > 5).float()
    booked = clicked * (fits - price + torch.randn(count) > 0).float()
    return fields, numbers, torch.stack([clicked, booked], dim=1)


def entire_space_loss(logits, labels):
    """Bookings are learned over all impressions, as the product of both chances."""
    chances = logits.sigmoid()
    booked = (chances[:, 0] * chances[:, 1]).clamp(1e-6, 1 - 1e-6)
    return F.binary_cross_entropy_with_logits(logits[:, 0], labels[:, 0]) + F.binary_cross_entropy(booked, labels[:, 1])


def shuffled(tensors, batch_size):
    for chosen in torch.randperm(len(tensors[0])).split(batch_size):
        yield [tensor[chosen] for tensor in tensors]


def main():
    diary, _ = begin()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    data = impressions(150_000)
    model = MMoE()
    tables = [model.features.table.weight]
    others = [weight for name, weight in model.named_parameters() if not name.startswith("features.")]
    optimizer = torch.optim.AdamW(
        [{"params": tables, "weight_decay": 0.0}, {"params": others, "weight_decay": 1e-4}], lr=1e-3, fused=True
    )
    epoch = 0
    while True:
        total, count = torch.zeros(()), 0
        for fields, numbers, labels in shuffled(data, batch_size=384):
            loss = entire_space_loss(model(fields, numbers), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            count += 1
            diary.stepped()
        epoch += 1
        print(f"epoch {epoch}: loss {total.item() / count:.4f}", flush=True)


if __name__ == "__main__":
    main()
