"""An ELECTRA of a small corpus: a generator fills masked words, a discriminator tells which words were replaced.

Nothing is planted: masks, replacements and losses are of the whole batch, and the corpus is a matrix in memory.
"""

import logging
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

logger = logging.getLogger(__name__)

VOCABULARY, MASK, BLOCK, BATCH = 1500, 1, 48, 12


class Encoder(nn.Module):
    def __init__(self, words, places, width, heads, layers):
        super().__init__()
        self.words, self.places = words, places
        self.project = nn.Linear(words.embedding_dim, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, F.gelu, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.project(self.words(tokens) + self.places.weight)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Electra(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(BLOCK, width)
        nn.init.normal_(self.words.weight, std=0.02)
        self.generator = Encoder(self.words, self.places, width // 2, 2, 2)
        self.to_words = nn.Sequential(nn.Linear(width // 2, width), nn.GELU(), nn.LayerNorm(width))
        self.discriminator = Encoder(self.words, self.places, width, 4, 3)
        self.to_replaced = nn.Linear(width, 1)

    def forward(self, tokens, is_masked):
        hidden = self.generator(tokens.masked_fill(is_masked, MASK))[is_masked]
        logits = self.to_words(hidden) @ self.words.weight.T
        generator_loss = F.cross_entropy(logits, tokens[is_masked])
        with torch.no_grad():
            noise = torch.rand_like(logits).clamp_(min=1e-9).log_().neg_().log_().neg_()
            replaced = tokens.masked_scatter(is_masked, (logits + noise).argmax(-1))
        scores = self.to_replaced(self.discriminator(replaced)).squeeze(-1)
        discriminator_loss = F.binary_cross_entropy_with_logits(scores, (replaced != tokens).float())
        return generator_loss, discriminator_loss


class Corpus:
    """Lines of words that follow each other by rules, with some noise."""

    def __init__(self, lines):
        follow = torch.randint(2, VOCABULARY, (VOCABULARY,))
        self.lines = torch.empty(lines, BLOCK, dtype=torch.long)
        self.lines[:, 0] = torch.randint(2, VOCABULARY, (lines,))
        for place in range(1, BLOCK):
            is_noise = torch.rand(lines) < 0.2
            self.lines[:, place] = torch.where(
                is_noise, torch.randint(2, VOCABULARY, (lines,)), follow[self.lines[:, place - 1]]
            )

    def batches(self):
        while True:
            for rows in torch.randperm(len(self.lines)).split(BATCH):
                yield self.lines[rows]


class Trainer:
    def __init__(self, model, corpus, diary):
        self.model, self.corpus, self.diary = model, corpus, diary
        decay = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
        no_decay = [parameter for parameter in model.parameters() if parameter.ndim < 2]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=5e-4, betas=(0.9, 0.98))
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 300))

    def run(self):
        self.model.train()
        for iteration, tokens in enumerate(self.corpus.batches()):
            is_masked = torch.rand(tokens.shape) < 0.15
            generator_loss, discriminator_loss = self.model(tokens, is_masked)
            self.model.zero_grad(set_to_none=True)
            (generator_loss + 25 * discriminator_loss).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            if iteration % 100 == 0:
                logger.info(
                    "iter %d: generator %.4f discriminator %.4f", iteration, generator_loss.item(),
                    discriminator_loss.item(),
                )  # fmt: skip
            self.diary.stepped()


def main():
    diary, _ = begin()
    logging.basicConfig(format="%(asctime)s - %(message)s", level=logging.INFO, stream=sys.stdout)
    torch.manual_seed(17)
    torch.set_num_threads(1)
    Trainer(Electra(), Corpus(3000), diary).run()


if __name__ == "__main__":
    main()
