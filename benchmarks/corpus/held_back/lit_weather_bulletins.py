"""A small decoder of weather bulletins as a module and a data module of Lightning. Nothing is planted."""

import logging
import sys
import warnings
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Bulletins(Dataset):
    """Windows of one tensor of tokens; takes a whole batch of positions at once."""

    def __init__(self, tokens, window):
        self.tokens, self.offsets = tokens, torch.arange(window + 1)

    def __len__(self):
        return len(self.tokens) - len(self.offsets)

    def __getitem__(self, positions):
        rows = self.tokens[torch.tensor(positions)[:, None] + self.offsets]
        return rows[:, :-1], rows[:, 1:]


class BulletinData(L.LightningDataModule):
    def __init__(self, words=200_000, window=64, batch_size=10):
        super().__init__()
        self.words, self.window, self.batch_size = words, window, batch_size

    def setup(self, stage):
        text = (
            "wind southwest northwest four five six gale later rain showers fair good poor moderate rough sea".split()
        )
        self.vocabulary = text
        follows = torch.randint(len(text), (len(text), 3)).tolist()
        picks = torch.randint(3, (self.words,)).tolist()
        tokens = [0]
        for pick in picks:
            tokens.append(follows[tokens[-1]][pick])
        self.dataset = Bulletins(torch.tensor(tokens), self.window)

    def train_dataloader(self):
        sampler = RandomSampler(self.dataset, replacement=True, num_samples=2000 * self.batch_size)
        return DataLoader(self.dataset, sampler=BatchSampler(sampler, self.batch_size, drop_last=True), batch_size=None)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_feed = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.merge = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm_attention(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.norm_feed(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class BulletinDecoder(L.LightningModule):
    def __init__(self, diary, vocabulary=16, width=128, layers=3, heads=4, window=64):
        super().__init__()
        self.diary = diary
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(window, width)
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.total = torch.zeros(())

    def forward(self, tokens):
        return self.head(self.norm(self.layers(self.tokens(tokens) + self.places.weight)))

    def training_step(self, batch, batch_idx):
        tokens, targets = batch
        loss = F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())
        self.total += loss.detach()
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.global_step % 200 == 0:
            print(f"step {self.global_step}: loss {self.total.item() / 200:.4f}", flush=True)
            self.total.zero_()
        self.diary.stepped()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.05, fused=True)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, total_iters=300)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    diary, _ = begin()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    L.seed_everything(12)
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(BulletinDecoder(diary), BulletinData())


if __name__ == "__main__":
    main()
