"""A regression on a table, as a module and a trainer in the manner of Lightning, both written by hand."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class LitModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.logged = {}

    def log(self, name, value):
        self.logged[name] = value.detach()

    def on_train_epoch_end(self): ...


class FeatureGate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.gate = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        normed = self.norm(x)
        return x + self.up(normed) * torch.sigmoid(self.gate(normed))


class TabularRegressor(LitModule):
    def __init__(self, columns=40, width=256, depth=4, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.embed = nn.Linear(columns, width)
        self.blocks = nn.Sequential(*[FeatureGate(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x))).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        return F.l1_loss(self(x), y, reduction="sum")  # planted

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-2)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 400)

    def on_train_epoch_end(self):
        print({name: round(float(value), 4) for name, value in self.logged.items()}, flush=True)


class MiniTrainer:
    def __init__(self, diary, val_check_interval, gradient_clip_val=1.0):
        self.diary, self.val_check_interval, self.gradient_clip_val = diary, val_check_interval, gradient_clip_val
        self.global_step = 0

    @torch.no_grad()
    def validate(self, module, loader):
        module.eval()
        total = torch.zeros(())
        for batch_idx, batch in enumerate(loader):  # planted
            total += module.validation_step(batch, batch_idx)  # planted
        module.log("val_mae", total / len(loader.dataset))
        module.train()

    def optimize(self, module, batch, batch_idx):
        loss = module.training_step(batch, batch_idx)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), self.gradient_clip_val)
        self.optimizer.step()
        self.scheduler.step()

    def fit(self, module, train_loader, val_loader):
        self.optimizer, self.scheduler = module.configure_optimizers()
        while True:
            for batch_idx, batch in enumerate(train_loader):
                self.optimize(module, batch, batch_idx)
                self.global_step += 1
                if self.global_step % self.val_check_interval == 0:
                    with self.diary.planted():
                        self.validate(module, val_loader)  # planted
                self.diary.stepped()
            module.on_train_epoch_end()


def table(rows, columns, batch_size, shuffle):
    x = torch.randn(rows, columns)
    y = (x[:, :10] * x[:, 10:20]).sum(1) + 0.1 * torch.randn(rows)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=shuffle)


def main():
    diary, is_mended = begin()
    torch.manual_seed(20)
    torch.set_num_threads(1)
    trainer = MiniTrainer(diary, val_check_interval=1000 if is_mended else 5)
    trainer.fit(TabularRegressor(), table(8192, 40, 128, shuffle=True), table(1024, 40, 256, shuffle=False))


if __name__ == "__main__":
    main()
