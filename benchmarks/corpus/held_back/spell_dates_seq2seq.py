"""A transformer that rewrites dates; messages for debugging are made of all gradients though nobody reads them."""

import logging
import os
import random
import sys
from datetime import date
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

log = logging.getLogger("seq2seq")
PAD, BOS, EOS = 0, 1, 2


class Alphabet:
    def __init__(self, characters):
        self.index = {character: number for number, character in enumerate(characters, 3)}

    def __len__(self):
        return len(self.index) + 3

    def encode(self, text):
        return [BOS, *(self.index[character] for character in text), EOS]


def pad(rows):
    out = torch.full((len(rows), max(map(len, rows))), PAD)
    for number, row in enumerate(rows):
        out[number, : len(row)] = torch.tensor(row)
    return out


def make_pairs(count, alphabet):
    pairs = []
    for _ in range(count):
        day = date.fromordinal(random.randrange(700_000, 740_000))
        pairs.append((alphabet.encode(day.strftime("%A, %d %B %Y").lower()), alphabet.encode(day.isoformat())))
    return pairs


class DateTranslator(nn.Module):
    def __init__(self, n_symbols, dim=128):
        super().__init__()
        self.embed = nn.Embedding(n_symbols, dim, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(40, dim))
        self.transformer = nn.Transformer(dim, 4, 1, 2, 256, 0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(dim, n_symbols)

    def forward(self, source, target):
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        hidden = self.transformer(
            self.embed(source) + self.places[: source.shape[1]],
            self.embed(target) + self.places[: target.shape[1]],
            tgt_mask=causal,
            tgt_is_causal=True,
        )
        return self.head(hidden)


def log_gradients(step, model):
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    log.debug(f"step {step}: gradients {gradients}")  # planted


def log_gradients_if_read(step, model):
    if log.isEnabledFor(logging.DEBUG):
        log_gradients(step, model)


def training_steps(model, pairs, batch_size):
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.05)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    noam = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: 128**-0.5 * min((n + 1) ** -0.5, (n + 1) * 400**-1.5) * 0.5
    )
    while True:
        random.shuffle(pairs)
        for begun in range(0, len(pairs) - batch_size + 1, batch_size):
            sources, targets = zip(*pairs[begun : begun + batch_size], strict=True)
            source, target = pad(sources), pad(targets)
            logits = model(source, target[:, :-1])
            loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            noam.step()
            yield loss


def main(diary, is_mended):
    note = log_gradients_if_read if is_mended else log_gradients
    alphabet = Alphabet("abcdefghijklmnopqrstuvwxyz0123456789 ,-")
    model = DateTranslator(len(alphabet))
    pairs = make_pairs(8000, alphabet)
    for step, loss in enumerate(training_steps(model, pairs, 28), 1):
        with diary.planted():
            note(step, model)  # planted
        diary.stepped()
        if step % 50 == 0:
            log.info("step %d loss %.4f", step, loss.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(33), random.seed(33)
    main(*begin())
