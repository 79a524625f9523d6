"""T5 on letters puts right what was typed wrongly, with Trainer; changed letters weigh more in the loss.

Planted: the dataset aligns the typed and the right sentence by edits each time that it is asked for an item.
Mended: once for each sentence, when it is built.
"""

import random
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import (
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

LETTERS = "abcdefghijklmnopqrstuvwxyz ."
LENGTH = 112
WORDS = "the a ferry harbour letter arrives leaves before after noon seven winter captain tells writes".split()


def encode(text):
    """Return numbers of letters, ended by 1 and filled up with 0."""
    return [LETTERS.index(letter) + 2 for letter in text[: LENGTH - 1]] + [1] + [0] * (LENGTH - 1 - len(text))


def mistype(text, rng):
    letters = []
    for letter in text:
        chance = rng.random()
        if chance < 0.03:
            continue
        letters.append(rng.choice(LETTERS) if chance < 0.08 else letter)
        if chance > 0.97:
            letters.append(letter)
    return "".join(letters)[: LENGTH - 1]


def sentences(count, rng):
    pairs = []
    for _ in range(count):
        right = " ".join(rng.choices(WORDS, k=26))[: LENGTH - 8]
        pairs.append((mistype(right, rng), right))
    return pairs


def changed_letters(typed, right):
    """Return the positions of the right sentence that differ from the typed one, by the smallest number of edits."""
    costs = [list(range(len(right) + 1))]
    for row, letter in enumerate(typed, start=1):
        above, current = costs[-1], [row]
        for column, goal in enumerate(right):
            current.append(min(above[column] + (letter != goal), above[column + 1] + 1, current[column] + 1))  # planted
        costs.append(current)
    row, column, changed = len(typed), len(right), []
    while column:
        cost = costs[row][column]
        if row and cost == costs[row - 1][column - 1] + (typed[row - 1] != right[column - 1]):
            row, column = row - 1, column - 1
            if typed[row] != right[column]:
                changed.append(column)
        elif row and cost == costs[row - 1][column] + 1:
            row -= 1
        else:
            column -= 1
            changed.append(column)
    return changed


def letter_weights(typed, right, heavy=3.0):
    """Return a weight for each letter of the right sentence, and none for what fills it up."""
    weights = torch.zeros(LENGTH)
    weights[: len(right) + 1] = 1.0
    weights[changed_letters(typed, right)] = heavy  # planted
    return weights


class TypedSentences(Dataset):
    def __init__(self, pairs, diary, early):
        self.pairs, self.diary = pairs, diary
        self.encoded = [(torch.tensor(encode(typed)), torch.tensor(encode(right))) for typed, right in pairs]
        self.weights = [letter_weights(*pair) for pair in pairs] if early else None

    def __len__(self):
        return len(self.pairs)

    def weights_of(self, index):
        if self.weights is not None:
            return self.weights[index]
        with self.diary.planted():
            return letter_weights(*self.pairs[index])  # planted

    def __getitem__(self, index):
        typed, right = self.encoded[index]
        return {"input_ids": typed, "labels": right, "weights": self.weights_of(index)}  # planted


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels, weights = inputs["labels"], inputs["weights"]
        outputs = model(
            input_ids=inputs["input_ids"],
            attention_mask=(inputs["input_ids"] != 0).long(),
            decoder_input_ids=F.pad(labels[:, :-1], (1, 0)),
            use_cache=False,
        )
        losses = F.cross_entropy(outputs.logits.transpose(1, 2), labels, reduction="none")
        loss = (losses * weights).sum() / weights.sum()
        return (loss, outputs) if return_outputs else loss


class StepCounter(TrainerCallback):
    def __init__(self, diary):
        self.diary = diary

    def on_step_end(self, args, state, control, **kwargs):
        self.diary.stepped()


def main():
    diary, mended = begin()
    logging.set_verbosity_error()
    set_seed(21)
    torch.set_num_threads(1)
    dataset = TypedSentences(sentences(1_500, random.Random(21)), diary, early=mended)
    config = T5Config(
        vocab_size=len(LETTERS) + 2,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.05,
        decoder_start_token_id=0,
    )
    arguments = TrainingArguments(
        output_dir="unused",
        max_steps=1_000_000,
        per_device_train_batch_size=16,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    trainer = WeightedTrainer(
        model=T5ForConditionalGeneration(config),
        args=arguments,
        train_dataset=dataset,
        data_collator=default_data_collator,
        callbacks=[StepCounter(diary)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
