"""A cross-encoder puts offers in order for public tenders, with Accelerate: BERT reads both.

A record of each step (loss, rate of learning) lies in a folder of its own, and the newest 1500 are kept, as
the team's notebook reads them from there. Planted: the folder is listed and put in order of time after each
step, to find what is old. Mended: the names are kept in order.
"""

import json
import sys
import tempfile
from collections import deque
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, get_scheduler
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

KEPT = 1500


class FolderRetention:
    """Keeps the newest records by what the folder says."""

    def __init__(self, folder):
        self.folder = folder

    def added(self, path):
        records = sorted(self.folder.glob("step-*.json"), key=lambda record: record.stat().st_mtime_ns)  # planted
        for record in records[:-KEPT]:
            record.unlink()


class NamesRetention:
    """Keeps the newest records by the order in which they were written."""

    def __init__(self, folder):
        self.paths = deque(sorted(folder.glob("step-*.json")))

    def added(self, path):
        self.paths.append(path)
        while len(self.paths) > KEPT:
            self.paths.popleft().unlink()


class StepRecords:
    def __init__(self, folder, retention, diary):
        self.folder, self.retention, self.diary = folder, retention, diary

    def write(self, step, **values):
        path = self.folder / f"step-{step:08d}.json"
        path.write_text(json.dumps({"step": step, **values}))
        with self.diary.planted():
            self.retention.added(path)  # planted


def earlier_run(folder, steps):
    """Leave what the run before the interruption has written."""
    for step in range(steps):
        (folder / f"step-{step:08d}.json").write_text(json.dumps({"step": step, "loss": 0.7, "lr": 5e-4}))


def pairs(count, vocabulary=3000, length=56):
    """Return tenders and offers in one row each, and whether they belong together."""
    tenders = torch.randint(5, vocabulary, (count, length // 2))
    fitting = torch.rand(count) < 0.5
    offers = torch.where(fitting[:, None], tenders.roll(5, 1), torch.randint(5, vocabulary, tenders.shape))
    return TensorDataset(torch.cat((tenders, offers), 1), fitting.float())


def main():
    diary, mended = begin()
    logging.set_verbosity_error()
    set_seed(77)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    folder = Path(tempfile.mkdtemp(prefix="tender-records-"))
    earlier_run(folder, KEPT)
    config = BertConfig(
        vocab_size=3000,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=64,
        num_labels=1,
    )
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    scheduler = get_scheduler("linear", optimizer, num_warmup_steps=100, num_training_steps=1_000_000)
    loader = DataLoader(pairs(6_000), batch_size=16, shuffle=True, drop_last=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    kinds = torch.arange(56).ge(28).long().expand(16, -1)
    retention = NamesRetention(folder) if mended else FolderRetention(folder)
    records = StepRecords(folder, retention, diary)
    model.train()
    completed_steps = KEPT
    for epoch in range(1_000_000):
        for input_ids, fitting in loader:
            logits = model(input_ids=input_ids, token_type_ids=kinds).logits.squeeze(1)
            loss = F.binary_cross_entropy_with_logits(logits, fitting)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            completed_steps += 1
            records.write(completed_steps, loss=loss.item(), lr=scheduler.get_last_lr()[0])  # planted
            if completed_steps % 100 == 0:
                accelerator.print(f"epoch {epoch} step {completed_steps} loss {loss.item():.4f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
