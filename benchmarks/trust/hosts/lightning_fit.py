"""Lightning's Trainer around the three functions of ``known/spinning.py``: lightning_fit.py KNOWN."""

import os
import sys

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, sys.argv[1])
import spinning


class Spinner(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        if index == 0:
            print("ready", os.getpid(), flush=True)
        spinning.spin_half()
        spinning.spin_third()
        spinning.spin_fifth()
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.zeros(4000, 4)), batch_size=2)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Spinner(), loader)
