"""Names, places and trades in old parish registers are tagged by a BiLSTM with a CRF.

The share of right tags of each batch goes into a running mean. Planted: the best paths are found sentence by
sentence, tag by tag, in lists. Mended: for all sentences and tags at once.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WORDS, TAGS, LENGTH, BATCH = 4000, 11, 28, 24


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(0.1 * torch.randn(tags, tags))
        self.first = nn.Parameter(torch.zeros(tags))

    def score(self, emissions, tags):
        paths = emissions.gather(2, tags[:, :, None]).sum((1, 2))
        return paths + self.first[tags[:, 0]] + self.transitions[tags[:, :-1], tags[:, 1:]].sum(1)

    def partition(self, emissions):
        alpha = self.first + emissions[:, 0]
        for emission in emissions[:, 1:].unbind(1):
            alpha = torch.logsumexp(alpha[:, :, None] + self.transitions, dim=1) + emission
        return alpha.logsumexp(1)

    def forward(self, emissions, tags):
        return (self.partition(emissions) - self.score(emissions, tags)).mean()


class ListDecoder:
    """Viterbi's algorithm as in the textbook."""

    def best_path(self, emissions, transitions, first):
        tags = range(len(first))
        scores = [first[tag] + emissions[0][tag] for tag in tags]
        pointers = []
        for emission in emissions[1:]:
            best, pointer = [], []
            for tag in tags:
                before = max(tags, key=lambda previous: scores[previous] + transitions[previous][tag])  # planted
                pointer.append(before)
                best.append(scores[before] + transitions[before][tag] + emission[tag])
            scores = best
            pointers.append(pointer)
        path = [max(tags, key=scores.__getitem__)]
        for pointer in reversed(pointers):
            path.append(pointer[path[-1]])
        return path[::-1]

    def decode(self, crf, emissions):
        transitions, first = crf.transitions.tolist(), crf.first.tolist()
        paths = []
        for sentence in emissions.tolist():
            paths.append(self.best_path(sentence, transitions, first))  # planted
        return torch.tensor(paths)


class TensorDecoder:
    """Viterbi's algorithm for the whole batch."""

    def decode(self, crf, emissions):
        scores, pointers = crf.first + emissions[:, 0], []
        for emission in emissions[:, 1:].unbind(1):
            best, pointer = (scores[:, :, None] + crf.transitions).max(1)
            scores = best + emission
            pointers.append(pointer)
        path = [scores.argmax(1, keepdim=True)]
        for pointer in reversed(pointers):
            path.append(pointer.gather(1, path[-1]))
        return torch.cat(path[::-1], 1)


class Tagger(nn.Module):
    def __init__(self, dim=96, hidden=128):
        super().__init__()
        self.words = nn.Embedding(WORDS, dim)
        self.lstm = nn.LSTM(dim, hidden, batch_first=True, bidirectional=True)
        self.emit = nn.Linear(2 * hidden, TAGS)
        self.crf = CRF(TAGS)

    def forward(self, words, tags):
        emissions = self.emit(self.lstm(self.words(words))[0])
        return self.crf(emissions, tags), emissions.detach()


def registers(count):
    """Return entries of registers: the tag of a word depends on it and on the word before."""
    words = torch.randint(1, WORDS, (count, LENGTH))
    tags = (words % 7 + words.roll(1, 1) % 5) % TAGS
    return TensorDataset(words, tags)


class Accuracy:
    def __init__(self, decoder, diary):
        self.decoder, self.diary, self.mean = decoder, diary, 0.0

    @torch.no_grad()
    def update(self, crf, emissions, tags):
        with self.diary.planted():
            paths = self.decoder.decode(crf, emissions)  # planted
        self.mean += 0.02 * ((paths == tags).float().mean() - self.mean)


def main():
    diary, mended = begin()
    torch.manual_seed(1754)
    torch.set_num_threads(1)
    entries = registers(9_000)
    sampler = BatchSampler(RandomSampler(entries), BATCH, drop_last=True)
    loader = DataLoader(entries, sampler=sampler, batch_size=None)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    accuracy = Accuracy(TensorDecoder() if mended else ListDecoder(), diary)
    step = 0
    while True:
        for words, tags in loader:
            loss, emissions = model(words, tags)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy.update(model.crf, emissions, tags)  # planted
            step += 1
            if step % 100 == 0:
                print(f"step {step} nll {loss.item():.3f} accuracy {accuracy.mean.item():.3f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
