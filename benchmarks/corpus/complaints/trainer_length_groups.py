"""A Trainer that fine-tunes a small text classifier on short sentences, in batches grouped by length.

After huggingface/transformers issue 18003, "Optional type of lengths causes slow speed in LengthGroupedSampler". The
dataset is in the torch format, so its column of lengths is a tensor, and ``get_length_grouped_indices`` sorts Python
indices by ``lengths[i]``: one tensor made for each key and one for each comparison, again in each epoch, before the
first batch. The fix (pull request 18051) turns the lengths into a list of numbers first; the source times 100,000
keys both ways and names no ratio for a training. No transformers here: the sampler is rewritten after it.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, CLASSES, PAD = 6000, 12, 0


class SentenceDataset(Dataset):
    def __init__(self, count, generator):
        lengths = torch.randn(count, generator=generator).mul(0.5).add(2.7).exp().long().clamp(4, 48)
        labels = torch.randint(0, CLASSES, (count,), generator=generator)
        tokens = torch.randint(1, VOCABULARY, (int(lengths.sum()),), generator=generator)
        told = torch.rand(len(tokens), generator=generator) < 0.2
        tokens[told] = 1 + labels.repeat_interleave(lengths)[told] * 40 + tokens[told] % 40
        self.columns = {"length": lengths, "label": labels}
        self.rows = tokens.split(lengths.tolist())

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        return self.rows[key], self.columns["label"][key]

    def __getitems__(self, indices):
        return [self.rows[index] for index in indices], self.columns["label"][indices]


def collate(features):
    rows, labels = features
    return {"input_ids": pad_sequence(rows, batch_first=True, padding_value=PAD), "labels": labels}


def get_length_grouped_indices(lengths, batch_size, diary, mega_batch_mult=None):
    """Shuffle, cut into mega batches, and sort each of these by length: a batch then has sentences of one length."""
    if mega_batch_mult is None:
        mega_batch_mult = max(min(len(lengths) // (batch_size * 4), 50), 1)
    megabatch_size = mega_batch_mult * batch_size
    indices = torch.randperm(len(lengths)).tolist()
    megabatches = [indices[i : i + megabatch_size] for i in range(0, len(lengths), megabatch_size)]
    with diary.planted():
        megabatches = [sorted(one, key=lambda i: lengths[i], reverse=True) for one in megabatches]  # planted
    longest = max(range(len(megabatches)), key=lambda i: int(lengths[megabatches[i][0]]))
    megabatches[0][0], megabatches[longest][0] = megabatches[longest][0], megabatches[0][0]
    return [index for one in megabatches for index in one]


class LengthGroupedSampler(Sampler):
    def __init__(self, batch_size, lengths, diary, is_mended):
        if is_mended and isinstance(lengths, torch.Tensor):
            lengths = lengths.tolist()
        self.batch_size, self.lengths, self.diary = batch_size, lengths, diary

    def __len__(self):
        return len(self.lengths)

    def __iter__(self):
        return iter(get_length_grouped_indices(self.lengths, self.batch_size, self.diary))  # planted


class ConvClassifier(nn.Module):
    """Convolutions of three widths over the words, and the largest of each."""

    def __init__(self, width=32, channels=40):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, channels, size, padding=size - 1) for size in (2, 3, 4))
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(3 * channels, CLASSES))

    def forward(self, input_ids, labels):
        words = self.embedding(input_ids).transpose(1, 2)
        pooled = [functional.relu(one(words)).amax(2) for one in self.convolutions]
        logits = self.head(torch.cat(pooled, 1))
        return functional.cross_entropy(logits, labels), logits


class Trainer:
    def __init__(self, model, train_dataset, eval_dataset, diary, is_mended, batch_size=64):
        self.model, self.train_dataset, self.batch_size, self.diary = model, train_dataset, batch_size, diary
        self.is_mended = is_mended
        self.eval_loader = DataLoader(eval_dataset, 256, collate_fn=collate)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def get_train_dataloader(self):
        lengths = self.train_dataset["length"]
        sampler = LengthGroupedSampler(self.batch_size, lengths, self.diary, self.is_mended)
        return DataLoader(self.train_dataset, self.batch_size, sampler=sampler, collate_fn=collate, drop_last=True)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = sum((self.model(**batch)[1].argmax(1) == batch["labels"]).sum() for batch in self.eval_loader)
        self.model.train()
        return int(right) / len(self.eval_loader.dataset)

    def train(self, epochs):
        loader = self.get_train_dataloader()
        self.model.train()
        for epoch in range(epochs):
            total = torch.zeros(())
            for batch in loader:  # planted
                loss, _ = self.model(**batch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.detach()
                self.diary.stepped()
            print(f"epoch {epoch}: loss {total.item() / len(loader):.3f} accuracy {self.evaluate():.3f}", flush=True)


def main():
    diary, is_mended = begin()
    generator = torch.Generator().manual_seed(2)
    train, held_out = SentenceDataset(24_000, generator), SentenceDataset(512, generator)
    Trainer(ConvClassifier(), train, held_out, diary, is_mended).train(10**6)


if __name__ == "__main__":
    torch.manual_seed(6)
    torch.set_num_threads(1)
    main()
