"""Transformers' Trainer on a small BERT that classifies pairs of sentences, padded by its collator.

Nothing is planted.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Pairs(Dataset):
    def __init__(self, count=4000):
        generator = torch.Generator().manual_seed(1)
        self.lengths = torch.randint(24, 64, (count,), generator=generator).tolist()
        self.labels = torch.randint(2, (count,), generator=generator).tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": torch.arange(self.lengths[index]) % 900 + index % 90, "labels": self.labels[index]}


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": torch.tensor([row["labels"] for row in rows]),
    }


class Steps(TrainerCallback):
    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()


def main():
    diary, _ = begin()
    torch.set_num_threads(1)
    config = BertConfig(
        vocab_size=1000, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256
    )
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, num_train_epochs=10_000, logging_steps=50,
        save_strategy="no", report_to=[], use_cpu=True, learning_rate=3e-5, warmup_steps=100, disable_tqdm=True,
    )  # fmt: skip
    Trainer(
        model=BertForSequenceClassification(config), args=arguments, train_dataset=Pairs(), data_collator=collate,
        callbacks=[Steps(diary)],
    ).train()  # fmt: skip


if __name__ == "__main__":
    main()
