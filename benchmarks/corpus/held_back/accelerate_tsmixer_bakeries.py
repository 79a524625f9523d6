"""TSMixer that foretells the sales of bakeries, with Accelerate: over time and over products by turns.

Nothing is planted.
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PRODUCTS, PAST, AHEAD, BATCH = 48, 168, 24, 48


def make_sales(hours=12_000):
    clock = torch.arange(hours).unsqueeze(1)
    daily = torch.sin(2 * math.pi * (clock / 24 + torch.rand(PRODUCTS)))
    weekly = torch.cos(2 * math.pi * (clock / 168 + torch.rand(PRODUCTS)))
    trend = torch.cumsum(0.02 * torch.randn(hours, PRODUCTS), dim=0)
    return 3 + daily + 0.5 * weekly + trend + 0.2 * torch.randn(hours, PRODUCTS)


class Windows(IterableDataset):
    """Batches of windows that start anywhere, taken at once from the whole series."""

    def __init__(self, sales, batches):
        self.windows = sales.unfold(0, PAST + AHEAD, 1)
        self.batches = batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            rows = self.windows[torch.randint(len(self.windows), (BATCH,))]
            yield rows[..., :PAST], rows[..., PAST:]


class MixerBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(PAST), nn.LayerNorm(PAST)
        self.time = nn.Sequential(nn.Linear(PAST, 2 * PAST), nn.ReLU(), nn.Linear(2 * PAST, PAST))
        self.products = nn.Sequential(nn.Linear(PRODUCTS, width), nn.ReLU(), nn.Linear(width, PRODUCTS))

    def forward(self, x):
        x = x + self.time(self.norm_1(x))
        return x + self.products(self.norm_2(x).transpose(1, 2)).transpose(1, 2)


class TSMixer(nn.Module):
    def __init__(self, depth=3, width=96):
        super().__init__()
        self.blocks = nn.Sequential(*[MixerBlock(width) for _ in range(depth)])
        self.head = nn.Linear(PAST, AHEAD)

    def forward(self, x):
        mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True) + 1e-5
        return self.head(self.blocks((x - mean) / deviation)) * deviation + mean


@torch.no_grad()
def validate(model, accelerator, loader):
    model.eval()
    errors = [F.l1_loss(model(past), ahead) for past, ahead in loader]
    model.train()
    return accelerator.gather(torch.stack(errors)).mean().item()


def main(diary, _):
    torch.set_num_threads(1)
    set_seed(73)
    accelerator = Accelerator(cpu=True)
    sales = make_sales()
    train_loader = DataLoader(Windows(sales[:10_500], batches=400), batch_size=None)
    validation_loader = DataLoader(Windows(sales[10_500:], batches=6), batch_size=None)
    model = TSMixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2_000)
    model, optimizer, train_loader, validation_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, validation_loader, scheduler
    )
    epoch = 0
    while True:
        total = torch.zeros(())
        for past, ahead in train_loader:
            loss = F.mse_loss(model(past), ahead)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            total += loss.detach()
            diary.stepped()
        epoch += 1
        error = validate(model, accelerator, validation_loader)
        accelerator.print(f"epoch {epoch} loss {total.item() / 400:.4f} validation mae {error:.4f}")


if __name__ == "__main__":
    main(*begin())
