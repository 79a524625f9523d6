"""A small random GPT-2 or BERT under Hugging Face's ``Trainer``, which evaluates and saves as it goes.

Usage: huggingface.py gpt2|bert [--steps N] [--workers N]
"""

import argparse
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)

VOCABULARY, LENGTH = 2000, 64
SIZE = {"vocab_size": VOCABULARY}


class Tokens(Dataset):
    """Random tokens, labeled for the model."""

    def __init__(self, count, classify):
        self.tokens = torch.randint(VOCABULARY, (count, LENGTH))
        self.classify = classify

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        labels = tokens.sum() % 2 if self.classify else tokens
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def make_model(name):
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=128, n_layer=3, n_head=4))
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=512,
            max_position_embeddings=LENGTH,
        )
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["gpt2", "bert"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    set_seed(0)
    classify = options.model == "bert"
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=32,
            dataloader_num_workers=options.workers,
            logging_steps=5,
            eval_strategy="steps",
            eval_steps=40,
            save_steps=40,
            save_total_limit=1,
            report_to=[],
            use_cpu=True,
        )
        trainer = Trainer(
            model=make_model(options.model),
            args=arguments,
            train_dataset=Tokens(4000, classify),
            eval_dataset=Tokens(320, classify),
        )
        started = time.perf_counter()
        trainer.train()
        print("steps", options.steps, "seconds", time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
