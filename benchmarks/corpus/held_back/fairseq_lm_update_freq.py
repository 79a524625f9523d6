"""A language model with a task, a criterion and a trainer as fairseq has them, that updates after each second batch.

Nothing is planted: batches of sentences are padded in the main process, which is a small part of a step.
"""

import logging
import math
import random
import sys
from argparse import Namespace
from collections import defaultdict
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

logger = logging.getLogger("fairseq_cli.train")


class Dictionary:
    pad_index, eos_index = 0, 1

    def __init__(self, size):
        self.symbols = ["<pad>", "</s>", *(f"w{number}" for number in range(size))]

    def __len__(self):
        return len(self.symbols)


class MonolingualDataset:
    """Sentences in which each word tends to lead to a few others."""

    def __init__(self, dictionary, count, seed):
        rng = random.Random(seed)
        words = range(2, len(dictionary))
        leads = {word: rng.sample(words, 6) for word in words}
        self.sentences = []
        for _ in range(count):
            word, sentence = rng.choice(words), []
            for _ in range(rng.randint(8, 40)):
                sentence.append(word)
                word = rng.choice(leads[word])
            self.sentences.append(torch.tensor([*sentence, dictionary.eos_index]))
        self.dictionary = dictionary

    def __len__(self):
        return len(self.sentences)

    def batches(self, max_tokens):
        """Sentences of nearly one length, so that little is padded, with at most so many tokens."""
        order = sorted(torch.randperm(len(self)).tolist(), key=lambda row: len(self.sentences[row]))
        batch, batches = [], []
        for row in order:
            if batch and len(self.sentences[row]) * (len(batch) + 1) > max_tokens:
                batches.append(batch)
                batch = []
            batch.append(row)
        random.shuffle(batches)
        return batches

    def collater(self, rows):
        sentences = [self.sentences[row] for row in rows]
        target = nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=self.dictionary.pad_index)
        tokens = target.roll(1, 1)
        tokens[:, 0] = self.dictionary.eos_index
        return {"tokens": tokens, "target": target, "ntokens": sum(map(len, sentences))}


class TransformerLM(nn.Module):
    def __init__(self, args, dictionary):
        super().__init__()
        self.embed_tokens = nn.Embedding(len(dictionary), args.embed_dim, dictionary.pad_index)
        nn.init.normal_(self.embed_tokens.weight, std=args.embed_dim**-0.5)
        self.embed_positions = nn.Embedding(64, args.embed_dim)
        layer = nn.TransformerEncoderLayer(
            args.embed_dim, args.heads, 4 * args.embed_dim, args.dropout, batch_first=True, norm_first=True
        )
        norm = nn.LayerNorm(args.embed_dim)
        self.layers = nn.TransformerEncoder(layer, args.layers, norm, enable_nested_tensor=False)
        self.register_buffer("future", torch.triu(torch.ones(64, 64, dtype=torch.bool), 1))
        self.scale = math.sqrt(args.embed_dim)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.scale * self.embed_tokens(tokens) + self.embed_positions.weight[:length]
        x = self.layers(x, mask=self.future[:length, :length])
        return F.linear(x, self.embed_tokens.weight)


class LabelSmoothedCrossEntropy(nn.Module):
    def __init__(self, task, epsilon=0.1):
        super().__init__()
        self.padding, self.epsilon = task.dictionary.pad_index, epsilon

    def forward(self, model, sample):
        logits = model(sample["tokens"]).flatten(0, 1)
        loss = F.cross_entropy(
            logits,
            sample["target"].flatten(),
            ignore_index=self.padding,
            label_smoothing=self.epsilon,
            reduction="sum",
        )
        return loss, sample["ntokens"], {"loss": loss.detach(), "ntokens": sample["ntokens"]}


class LanguageModelingTask:
    def __init__(self, args):
        self.args, self.dictionary = args, Dictionary(args.vocabulary)
        self.splits = {"train": MonolingualDataset(self.dictionary, 4000, 0)}
        self.splits["valid"] = MonolingualDataset(self.dictionary, 100, 1)

    def train_step(self, sample, model, criterion):
        model.train()
        loss, size, logs = criterion(model, sample)
        loss.backward()
        return size, logs

    @torch.no_grad()
    def valid_step(self, sample, model, criterion):
        model.eval()
        return criterion(model, sample)[2]


class Trainer:
    def __init__(self, args, task, model, criterion):
        self.args, self.task, self.model, self.criterion = args, task, model, criterion
        self.optimizer = torch.optim.AdamW(model.parameters(), args.lr, betas=(0.9, 0.98), weight_decay=0.01)
        self.updates, self.meters = 0, defaultdict(float)

    def train_step(self, samples):
        self.optimizer.zero_grad()
        total = 0
        for sample in samples:
            size, logs = self.task.train_step(sample, self.model, self.criterion)
            total += size
            for key, value in logs.items():
                self.meters[key] += value
        for parameter in self.model.parameters():
            parameter.grad.div_(total)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip_norm)
        self.optimizer.step()
        self.updates += 1
        warm = self.args.warmup_updates
        self.optimizer.param_groups[0]["lr"] = self.args.lr * min(self.updates / warm, (warm / self.updates) ** 0.5)

    def reduced(self):
        loss = self.meters["loss"] / self.meters["ntokens"] / math.log(2)
        self.meters.clear()
        return f"loss {loss:.3f} | ppl {2**loss:.2f} | num_updates {self.updates}"

    def validate(self):
        dataset = self.task.splits["valid"]
        logs = [
            self.task.valid_step(dataset.collater(rows), self.model, self.criterion)
            for rows in dataset.batches(self.args.max_tokens)
        ]
        return sum(one["loss"] for one in logs) / sum(one["ntokens"] for one in logs) / math.log(2)


def main(args, diary):
    task = LanguageModelingTask(args)
    trainer = Trainer(args, task, TransformerLM(args, task.dictionary), LabelSmoothedCrossEntropy(task))
    dataset = task.splits["train"]
    for epoch in range(1, 10**9):
        batches = dataset.batches(args.max_tokens)
        for begun in range(0, len(batches), args.update_freq):
            trainer.train_step([dataset.collater(rows) for rows in batches[begun : begun + args.update_freq]])
            diary.stepped()
            if trainer.updates % args.log_interval == 0:
                logger.info(f"epoch {epoch:03d}: {trainer.reduced()}")
        logger.info(f"valid on 'valid' subset | loss {trainer.validate():.3f}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    settings = {"vocabulary": 2000, "embed_dim": 96, "heads": 4, "layers": 2, "dropout": 0.1, "max_tokens": 512}
    settings |= {"update_freq": 2, "lr": 1e-3, "warmup_updates": 400, "clip_norm": 1.0, "log_interval": 50}
    main(Namespace(**settings), begin()[0])
