"""Pre-training of a small encoder on masked words, with warm-up and accumulated gradients.

Nothing is planted: text is tokenized once, masks are drawn by tensor operations, and losses are read every 100 steps.
"""

import itertools
import re
import sys
from collections import Counter
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PAD, MASK, SPECIALS = 0, 1, 2
LENGTH, WIDTH, ACCUMULATE, WARMUP = 48, 96, 2, 400
WORD = re.compile(r"\w+|[^\w\s]")
SENTENCE = "The river was wide, and nobody in the village had crossed it since the bridge fell; boats lay on the sand."


def build_corpus(sentences=3000):
    tokens = WORD.findall(SENTENCE.lower())
    order = torch.randint(len(tokens), (sentences, LENGTH)).tolist()
    return [[tokens[index] for index in row] for row in order]


def build_vocabulary(corpus):
    counts = Counter(itertools.chain.from_iterable(corpus))
    return {token: index + SPECIALS for index, (token, _) in enumerate(counts.most_common())}


def encode(corpus, vocabulary):
    return torch.tensor([[vocabulary[token] for token in row] for row in corpus])


def mask_tokens(ids, vocabulary_size, probability=0.15):
    chosen = torch.rand(ids.shape) < probability
    labels = ids.masked_fill(~chosen, -100)
    fate = torch.rand(ids.shape)
    inputs = ids.masked_fill(chosen & (fate < 0.8), MASK)
    random_ids = torch.randint(SPECIALS, vocabulary_size, ids.shape)
    return torch.where(chosen & (fate >= 0.9), random_ids, inputs), labels


class Encoder(nn.Module):
    def __init__(self, vocabulary_size, depth=2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, WIDTH, padding_idx=PAD)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        hidden = self.norm(self.layers(self.tokens(ids) + self.positions))
        return hidden @ self.tokens.weight.T


def train(model, loader, vocabulary_size, diary):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.98), weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))
    running = torch.zeros(())
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for micro_step, (ids,) in enumerate(batches, start=1):
        inputs, labels = mask_tokens(ids, vocabulary_size)
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten()) / ACCUMULATE
        loss.backward()
        running += loss.detach()
        if micro_step % ACCUMULATE:
            continue
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        diary.stepped()
        step = micro_step // ACCUMULATE
        if step % 100 == 0:
            print(f"step {step} loss {running.item() / 100:.4f} lr {scheduler.get_last_lr()[0]:.2e}", flush=True)
            running.zero_()


def main():
    diary, _ = begin()
    torch.manual_seed(55)
    torch.set_num_threads(1)
    corpus = build_corpus()
    vocabulary = build_vocabulary(corpus)
    vocabulary_size = len(vocabulary) + SPECIALS
    loader = DataLoader(TensorDataset(encode(corpus, vocabulary)), batch_size=12, shuffle=True, drop_last=True)
    train(Encoder(vocabulary_size), loader, vocabulary_size, diary)


if __name__ == "__main__":
    main()
