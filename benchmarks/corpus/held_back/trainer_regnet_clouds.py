"""Kinds of clouds by a small RegNet of Transformers with Trainer, label smoothing and a validation now and then.

Nothing is planted: images are kept as bytes in one tensor, a batch is taken from it at once.
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import (
    RegNetConfig,
    RegNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

KINDS = ["cirrus", "cirrocumulus", "altostratus", "cumulus", "stratus", "nimbostratus"]


def make_skies(count, size=48):
    """Return skies as bytes, and their kinds: noise that is smooth by another length for each kind."""
    kinds = torch.randint(len(KINDS), (count,))
    skies = torch.zeros(count, 3, size, size)
    for kind in range(len(KINDS)):
        rows = (kinds == kind).nonzero()[:, 0]
        grain = torch.rand(len(rows), 1, 3 + 4 * kind, 6 + 2 * kind)
        white = torch.nn.functional.interpolate(grain, size=(size, size), mode="bilinear")
        skies[rows] = white + torch.tensor([0.1, 0.2, 0.4])[:, None, None] * (1 - white)
    return (skies * 255).byte(), kinds


class Skies(Dataset):
    def __init__(self, count):
        self.images, self.kinds = make_skies(count)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        return self.images[index], self.kinds[index]

    def __getitems__(self, indices):
        rows = torch.tensor(indices)
        return self.images[rows], self.kinds[rows]


class Collator:
    """Makes floats of a batch, and mirrors it in half of the cases."""

    def __call__(self, batch):
        images, kinds = batch
        if torch.rand(()) < 0.5:
            images = images.flip(3)
        return {"pixel_values": images.float().sub_(127.0).div_(64.0), "labels": kinds}


class StepDiary(TrainerCallback):
    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()

    def on_log(self, args, state, control, logs=None, **kwargs):
        print({name: round(value, 4) for name, value in logs.items() if isinstance(value, float)}, flush=True)


def compute_metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main(folder):
    diary, _ = begin()
    config = RegNetConfig(
        embedding_size=16,
        hidden_sizes=[32, 64, 128, 192],
        depths=[1, 1, 2, 1],
        groups_width=32,
        layer_type="y",
        num_labels=len(KINDS),
        id2label=dict(enumerate(KINDS)),
    )
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        max_steps=10_000_000,
        learning_rate=1e-3,
        weight_decay=0.05,
        warmup_steps=100,
        lr_scheduler_type="cosine",
        label_smoothing_factor=0.1,
        optim="adamw_torch_fused",
        eval_strategy="steps",
        eval_steps=1000,
        logging_steps=250,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(
        RegNetForImageClassification(config),
        arguments,
        data_collator=Collator(),
        train_dataset=Skies(3600),
        eval_dataset=Skies(256),
        compute_metrics=compute_metrics,
        callbacks=[StepDiary(diary)],
    ).train()


if __name__ == "__main__":
    set_seed(20)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        main(name)
