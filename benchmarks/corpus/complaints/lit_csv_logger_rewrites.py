"""A cross-validated regression under a Lightning trainer, whose CSV logger writes all rows of the fold again at each flush.

Complaint: Lightning-AI/pytorch-lightning, issue 17725, "run_training_epoch takes longer with more epochs": the steps stay as fast as they were,
and yet an epoch takes 2 to 5 times as long later on. Pull request 18567 says: the CSVLogger keeps all metrics in memory and writes them all to its
file at each save, so each write takes longer than the one before. Fix: append the rows that are new, and write all again only if there are new
columns. The logger and the loop here have the structure of ``lightning.fabric.loggers.csv_logs`` and of the trainer.
"""

import csv
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SubsetRandomSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class ExperimentWriter:
    """Collects the metrics of a run, and writes them to ``metrics.csv``."""

    def __init__(self, log_dir, appends):
        log_dir.mkdir(parents=True)
        self.path, self.appends = log_dir / "metrics.csv", appends
        self.metrics, self.metrics_keys = [], []

    def log_metrics(self, metrics, step):
        self.metrics.append({"step": step, **metrics})

    def save(self):
        if not self.metrics:
            return
        if self.appends:
            self._append()
        else:
            self._write_all()  # planted

    def _write_all(self):
        last_m = {}
        for m in self.metrics:  # planted
            last_m.update(m)  # planted
        with self.path.open("w", newline="") as f:
            writer = csv.DictWriter(f, fieldnames=list(last_m))
            writer.writeheader()
            writer.writerows(self.metrics)  # planted

    def _append(self):
        is_new = not self.metrics_keys
        self.metrics_keys = self.metrics_keys or list(self.metrics[0])
        with self.path.open("a", newline="") as f:
            writer = csv.DictWriter(f, fieldnames=self.metrics_keys)
            if is_new:
                writer.writeheader()
            writer.writerows(self.metrics)
        self.metrics = []


class CSVLogger:
    """Gives each run a version of its own, and flushes it now and then."""

    def __init__(self, save_dir, diary, appends, flush_logs_every_n_steps):
        self.save_dir, self.diary, self.appends = Path(save_dir), diary, appends
        self.flush_every, self.version, self.experiment = flush_logs_every_n_steps, -1, None

    def new_version(self):
        shutil.rmtree(self.save_dir / f"version_{self.version - 2}", ignore_errors=True)
        self.version += 1
        self.experiment = ExperimentWriter(self.save_dir / f"version_{self.version}", self.appends)

    def log_metrics(self, metrics, step):
        self.experiment.log_metrics(metrics, step)
        if (step + 1) % self.flush_every == 0:
            with self.diary.planted():
                self.save()  # planted

    def save(self):
        self.experiment.save()  # planted


class LitRegressor(nn.Module):
    """Predicts a mean and a spread, and logs what its author wants to see of each step."""

    logged = "train_loss", "train_mae", "train_mse", "spread", "deviation"

    def __init__(self, features, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.head = nn.Linear(width, 2)

    def training_step(self, batch):
        inputs, wanted = batch
        mean, log_spread = self.head(self.body(inputs)).unbind(1)
        error = mean - wanted
        loss = (0.5 * (error / log_spread.exp()) ** 2 + log_spread).mean()
        with torch.no_grad():
            seen = torch.stack([loss, error.abs().mean(), error.square().mean(), log_spread.mean(), mean.std()])
        return loss, dict(zip(self.logged, seen.tolist(), strict=True))


class Trainer:
    """Fits one fold."""

    def __init__(self, diary, logger, max_steps, log_every_n_steps):
        self.diary, self.logger = diary, logger
        self.max_steps, self.log_every_n_steps = max_steps, log_every_n_steps

    def fit(self, module, loader):
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.max_steps)
        self.logger.new_version()
        step, epoch = 0, 0
        while step < self.max_steps:
            for batch in loader:
                optimizer.zero_grad()
                loss, metrics = module.training_step(batch)
                loss.backward()
                optimizer.step()
                schedule.step()
                if step % self.log_every_n_steps == 0:
                    metrics |= {"epoch": epoch, "lr": schedule.get_last_lr()[0]}
                    self.logger.log_metrics(metrics, step)  # planted
                self.diary.stepped()
                step += 1
            epoch += 1
        return metrics["train_loss"]


def main():
    diary, is_mended = begin()
    features = torch.randn(20_480, 96)
    data = TensorDataset(features, features[:, :8].sin().sum(1) + 0.1 * torch.randn(len(features)))
    with tempfile.TemporaryDirectory() as folder:
        signal.signal(signal.SIGTERM, lambda *_: (shutil.rmtree(folder, ignore_errors=True), os._exit(0)))
        logger = CSVLogger(folder, diary, appends=is_mended, flush_logs_every_n_steps=2)
        trainer = Trainer(diary, logger, max_steps=1200, log_every_n_steps=1)
        for fold in range(10**6):
            kept = [at for at in range(len(data)) if at % 5 != fold % 5]
            batches = BatchSampler(SubsetRandomSampler(kept), batch_size=256, drop_last=True)
            loader = DataLoader(data, sampler=batches, batch_size=None)
            print(f"fold {fold}: {trainer.fit(LitRegressor(96, 384), loader):.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    main()
