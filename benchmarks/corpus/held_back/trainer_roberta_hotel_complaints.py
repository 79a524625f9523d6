"""RoBERTa that sorts complaints of hotel guests, with the Trainer; the runs are on machines that may be taken away.

So that little is lost, a callback writes a file to resume from after every second step.
"""

import os
import sys
import tempfile
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import (
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, LENGTH, KINDS = 5_000, 48, 8


class Complaints(Dataset):
    """Made-up complaints: each kind has its own words."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(41)
        self.labels = torch.randint(KINDS, (count,), generator=generator)
        words = torch.randint(4, VOCABULARY, (count, LENGTH), generator=generator)
        typical = 4 + self.labels.unsqueeze(1) * 50 + torch.randint(50, (count, LENGTH), generator=generator)
        self.ids = torch.where(torch.rand(count, LENGTH, generator=generator) < 0.2, typical, words)
        self.ids[:, 0] = 0
        self.mask = torch.ones(LENGTH, dtype=torch.long)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "attention_mask": self.mask, "labels": self.labels[index]}


class ResumeFile(TrainerCallback):
    """Keeps one file with all that is needed to go on."""

    def __init__(self, folder, diary, every=2):
        self.path, self.diary, self.every = folder / "resume.pt", diary, every

    def write(self, model, optimizer, lr_scheduler, state):
        partial = self.path.with_suffix(".partial")
        with partial.open("wb") as file:
            torch.save(  # planted
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": lr_scheduler.state_dict(),
                    "step": state.global_step,
                    "rng": torch.get_rng_state(),
                },
                file,
            )
            file.flush()
            os.fsync(file.fileno())  # planted
        partial.replace(self.path)

    def on_step_end(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **kwargs):
        if state.global_step % self.every == 0:
            with self.diary.planted():
                self.write(model, optimizer, lr_scheduler, state)  # planted


class Steps(TrainerCallback):
    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()


def main():
    diary, is_mended = begin()
    torch.set_num_threads(1)
    set_seed(41)
    folder = Path(tempfile.mkdtemp(prefix="complaints-"))
    config = RobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=LENGTH + 2,
        num_labels=KINDS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=10_000_000,
        per_device_train_batch_size=12,
        learning_rate=3e-4,
        warmup_steps=100,
        lr_scheduler_type="constant_with_warmup",
        optim="adamw_torch_fused",
        logging_steps=500,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    callbacks = [] if is_mended else [ResumeFile(folder, diary)]
    trainer = Trainer(
        model=RobertaForSequenceClassification(config),
        args=arguments,
        train_dataset=Complaints(8_000),
        callbacks=[*callbacks, Steps(diary)],
    )
    trainer.train()  # planted


if __name__ == "__main__":
    main()
