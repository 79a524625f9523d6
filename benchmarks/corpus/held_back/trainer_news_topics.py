"""Topics of news by a small DistilBERT and the Trainer; a callback writes histograms of all weights in each step."""

import os
import random
import sys
import tempfile
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from torch.utils.data import Dataset
from torch.utils.tensorboard import SummaryWriter
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

TOPICS = ("world", "sports", "business", "science")
VOCABULARY = 1600
MAX_LENGTH = 48


class NewsDataset(Dataset):
    """Headlines as token numbers: each topic prefers its own quarter of the words."""

    def __init__(self, size, seed):
        draw = random.Random(seed)
        self.items = []
        quarter = (VOCABULARY - 2) // len(TOPICS)
        for _ in range(size):
            label = draw.randrange(len(TOPICS))
            length = draw.randint(20, MAX_LENGTH - 1)
            words = [
                2 + label * quarter + draw.randrange(quarter) if draw.random() < 0.4 else draw.randrange(2, VOCABULARY)
                for _ in range(length)
            ]
            self.items.append((torch.tensor([1, *words]), label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        input_ids, label = self.items[index]
        return {"input_ids": input_ids, "label": label}


def collate(features):
    input_ids = torch.nn.utils.rnn.pad_sequence([one["input_ids"] for one in features], batch_first=True)
    return {
        "input_ids": input_ids,
        "attention_mask": (input_ids != 0).long(),
        "labels": torch.tensor([one["label"] for one in features]),
    }


class WeightsCallback(TrainerCallback):
    """Shows in TensorBoard how weights are distributed."""

    def __init__(self, folder, diary, is_mended):
        self.writer = SummaryWriter(folder)
        self.diary = diary
        self.is_mended = is_mended

    def write_histograms(self, model, step):
        for name, weight in model.named_parameters():
            self.writer.add_histogram(name, weight.detach(), step)  # planted

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if not self.is_mended:
            with self.diary.planted():
                self.write_histograms(model, state.global_step)  # planted
        elif state.global_step % args.logging_steps == 0:
            self.write_histograms(model, state.global_step)
        self.diary.stepped()


def main():
    diary, is_mended = begin()
    torch.manual_seed(42)
    folder = tempfile.mkdtemp(prefix="news-")
    model = DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=MAX_LENGTH,
            n_layers=2,
            n_heads=4,
            dim=96,
            hidden_dim=256,
            num_labels=len(TOPICS),
        )
    )
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=10_000_000,
        per_device_train_batch_size=32,
        learning_rate=3e-4,
        warmup_steps=200,
        weight_decay=0.01,
        logging_steps=200,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=NewsDataset(6000, seed=42),
        data_collator=collate,
        callbacks=[WeightsCallback(f"{folder}/weights", diary, is_mended)],
    )
    torch.set_num_threads(1)
    trainer.train()


if __name__ == "__main__":
    main()
