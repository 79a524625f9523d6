"""A classifier under a Lightning trainer with the rich progress bar, which here is drawn anew after each batch.

Complaint: Lightning-AI/pytorch-lightning, issue 13937, "`RichProgressBar` in v1.6 is slower than v1.5": 12 to 13 s instead of 2 s for the same
short run. The thread and pull requests 14360 and 21321 say: since 1.6 the bar has ``auto_refresh=False`` and the callback refreshes it itself at
each batch, so rich renders the bar in the training loop. Fix: let the refresh thread of rich draw it some times a second (21321: 13.1 s become
8.3 s, and 7.7 s are without a bar). The trainer and the callback here have the structure of Lightning's; rich is the real one.
"""

import os
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class ProcessingSpeedColumn(ProgressColumn):
    """Batches a second."""

    def render(self, task):
        return Text(f"{task.speed or 0:>.2f}it/s", style="grey70")


class MetricsTextColumn(ProgressColumn):
    """The metrics of the progress bar, behind the last task."""

    def __init__(self):
        super().__init__()
        self.metrics = {}

    def render(self, task):
        return Text(" ".join(f"{name}: {value:.3f}" for name, value in self.metrics.items()), style="white")


class RichProgressBar:
    """The callback that shows how far the epoch is."""

    def __init__(self, diary, auto_refresh, refresh_rate=1):
        self.diary, self.auto_refresh, self.refresh_rate = diary, auto_refresh, refresh_rate
        self.progress, self.task, self.metrics = None, None, MetricsTextColumn()

    def on_train_start(self, trainer):
        console = Console(file=Path(os.devnull).open("w"), force_terminal=True, width=140, color_system="256")  # noqa: SIM115
        self.progress = Progress(
            TextColumn("[progress.description]{task.description}"),
            BarColumn(complete_style="#6206E0", finished_style="#6206E0"),
            TextColumn("{task.completed}/{task.total}", style="grey70"),
            TimeElapsedColumn(),
            TextColumn("•"),
            TimeRemainingColumn(),
            ProcessingSpeedColumn(),
            self.metrics,
            auto_refresh=self.auto_refresh,
            refresh_per_second=10,
            console=console,
        )
        self.progress.start()

    def on_train_epoch_start(self, trainer):
        if self.task is not None:
            self.progress.remove_task(self.task)
        self.task = self.progress.add_task(f"Epoch {trainer.current_epoch}", total=len(trainer.loader))

    def on_train_batch_end(self, trainer, batch_idx):
        if (batch_idx + 1) % self.refresh_rate:
            return
        self.metrics.metrics = trainer.progress_bar_metrics
        self.progress.update(self.task, advance=self.refresh_rate)
        if not self.auto_refresh:
            with self.diary.planted():
                self.refresh()  # planted

    def refresh(self):
        self.progress.refresh()  # planted


class LitDigits(nn.Module):
    """A module in Lightning's form: what a step does and with what it is optimized."""

    def __init__(self):
        super().__init__()
        self.trainer = None
        self.encoder = nn.Sequential(
            nn.Linear(784, 256), nn.BatchNorm1d(256), nn.GELU(), nn.Linear(256, 128), nn.GELU()
        )
        self.head = nn.Linear(128, 10)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        logits = self.head(self.encoder(images.flatten(1)))
        loss = nn.functional.cross_entropy(logits, labels)
        if batch_idx % 10 == 0:
            self.log("train_loss", loss.detach().item())
            self.log("train_acc", (logits.argmax(1) == labels).float().mean().item())
        return loss

    def log(self, name, value):
        self.trainer.progress_bar_metrics[name] = value

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Trainer:
    """Fits a module, and tells its callbacks about it."""

    def __init__(self, diary, callbacks, max_epochs):
        self.diary, self.callbacks, self.max_epochs = diary, callbacks, max_epochs
        self.current_epoch, self.loader, self.progress_bar_metrics = 0, None, {}

    def call_callbacks(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, *args)

    def fit(self, module, loader):
        self.loader, module.trainer = loader, self
        optimizer = module.configure_optimizers()
        self.call_callbacks("on_train_start")
        for epoch in range(self.max_epochs):
            self.current_epoch = epoch
            self.call_callbacks("on_train_epoch_start")
            for batch_idx, batch in enumerate(loader):
                optimizer.zero_grad()
                module.training_step(batch, batch_idx).backward()
                optimizer.step()
                self.call_callbacks("on_train_batch_end", batch_idx)  # planted
                self.diary.stepped()


def digits(count):
    """Return images and labels of which the images tell something."""
    labels = torch.randint(0, 10, (count,))
    return TensorDataset(torch.randn(10, 28, 28)[labels] + torch.randn(count, 28, 28), labels)


def main():
    diary, is_mended = begin()
    data = digits(12_000)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 128, drop_last=True), batch_size=None)
    trainer = Trainer(diary, [RichProgressBar(diary, auto_refresh=is_mended)], max_epochs=10**6)
    trainer.fit(LitDigits(), loader)


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    main()
