"""A tagger of words with a vocabulary of 100 000: the gradient of its embedding is dense, so Adam updates every row.

After pytorch issue 5309 ("Slow optimization with large vocabulary size embedding matrices"): a batch touches few rows, but
the gradient has the size of the matrix, and the optimizer reads and writes all of it and of its moments. The fix: "setting
sparse=True when constructing your embedding layer", with an optimizer that takes such gradients (issue 18404:
SparseAdam for these layers). The thread says that it "does in fact help a lot" and names no figure.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Config:
    vocabulary: int = 100_000
    embedding: int = 64
    hidden: int = 192
    tags: int = 17
    sentences: int = 20_000
    longest: int = 40
    batch_size: int = 48
    learning_rate: float = 1e-3
    sparse_embedding: bool = False
    log_every: int = 100


class Treebank(Dataset):
    """Sentences whose words follow Zipf's law; the tag of a word depends on it and on the word before."""

    def __init__(self, config):
        generator = torch.Generator().manual_seed(11)
        self.lengths = torch.randint(8, config.longest + 1, (config.sentences,), generator=generator)
        uniform = torch.rand(config.sentences, config.longest, generator=generator)
        self.words = (config.vocabulary**uniform).long().clamp_(1, config.vocabulary - 1)
        before = functional.pad(self.words, (1, 0))[:, :-1]
        self.tags = (self.words * 7 + before % 3) % config.tags
        outside = torch.arange(config.longest) >= self.lengths[:, None]
        self.words[outside], self.tags[outside] = 0, -100

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return self.words[index], self.tags[index], self.lengths[index]


def collate(samples):
    """Join sentences, cut to the longest of the batch."""
    words, tags, lengths = (torch.stack(column) for column in zip(*samples, strict=True))
    longest = int(lengths.max())
    return words[:, :longest], tags[:, :longest], lengths


class Tagger(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.embedding, sparse=config.sparse_embedding)  # planted
        self.encoder = nn.ModuleDict(
            {
                "lstm": nn.LSTM(config.embedding, config.hidden, batch_first=True, bidirectional=True),
                "hidden": nn.Linear(2 * config.hidden, config.hidden),
                "out": nn.Linear(config.hidden, config.tags),
            }
        )
        self.dropout = nn.Dropout(0.2)

    def forward(self, words, lengths):
        embedded = self.dropout(self.embedding(words))
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.encoder["lstm"](packed)[0], batch_first=True)
        return self.encoder["out"](functional.relu(self.encoder["hidden"](self.dropout(states))))


class Trainer:
    def __init__(self, config, diary):
        self.config, self.diary, self.steps = config, diary, 0
        self.loader = DataLoader(
            Treebank(config), batch_size=config.batch_size, shuffle=True, drop_last=True, collate_fn=collate
        )
        self.model = Tagger(config)
        self.encoder_optimizer = torch.optim.Adam(self.model.encoder.parameters(), config.learning_rate)
        adam = torch.optim.SparseAdam if config.sparse_embedding else torch.optim.Adam
        self.embedding_optimizer = adam(self.model.embedding.parameters(), config.learning_rate)

    def train_step(self, words, tags, lengths):
        self.model.train()
        scores = self.model(words, lengths)
        loss = functional.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=-100)
        self.encoder_optimizer.zero_grad()
        self.embedding_optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.encoder.parameters(), 5.0)
        self.encoder_optimizer.step()
        if self.config.sparse_embedding:
            self.embedding_optimizer.step()
        else:
            with self.diary.planted():
                self.embedding_optimizer.step()  # planted
        self.diary.stepped()
        return scores, loss

    def fit(self, epochs):
        for epoch in range(epochs):
            for words, tags, lengths in self.loader:
                scores, loss = self.train_step(words, tags, lengths)
                self.steps += 1
                if self.steps % self.config.log_every == 0:
                    right = (scores.argmax(-1) == tags).sum() / lengths.sum()
                    print(f"epoch {epoch}, step {self.steps}: loss {loss:.3f}, accuracy {right:.3f}", flush=True)


def main():
    diary, is_mended = begin()
    Trainer(Config(sparse_embedding=is_mended), diary).fit(10**6)


if __name__ == "__main__":
    torch.manual_seed(6)
    torch.set_num_threads(1)
    main()
