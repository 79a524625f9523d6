"""A regressor of the weight of parcels with Lightning; a callback takes quantiles of all weights after each batch."""

import sys
import warnings
from pathlib import Path

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

diary, is_mended = begin()
warnings.filterwarnings("ignore")


class ParcelRegressor(L.LightningModule):
    def __init__(self, width=320):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(24, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU()
        )
        self.head = nn.Linear(width, 1)

    def training_step(self, batch, _):
        x, y = batch
        return F.smooth_l1_loss(self.head(self.net(x)).squeeze(1), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class WeightQuantiles(L.Callback):
    """Keep the quantiles of each layer's weights, for a plot."""

    def __init__(self):
        self.levels = torch.tensor([0.05, 0.5, 0.95])
        self.history = {}

    def measure(self, module):
        for name, weight in module.named_parameters():
            self.history[name] = torch.quantile(weight.detach().flatten(), self.levels)  # planted

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if is_mended:
            if batch_idx == 0:
                self.measure(module)
        else:
            with diary.planted():
                self.measure(module)  # planted
        diary.stepped()


def main():
    L.seed_everything(5, verbose=False)
    torch.set_num_threads(1)
    x = torch.randn(16_384, 24)
    y = x[:, :4].prod(1) + x[:, 5].abs() + 0.1 * torch.randn(len(x))
    loader = DataLoader(TensorDataset(x, y), batch_size=512, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[WeightQuantiles()],
    )
    trainer.fit(ParcelRegressor(), loader)


if __name__ == "__main__":
    main()
