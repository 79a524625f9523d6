"""A GRU with attention that learns to write numbers out: its beam search validates after each fifth update."""

import random
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PAD, BOS, EOS = 0, 1, 2
DIGITS = "zero one two three four five six seven eight nine".split()
SOURCE = {str(digit): 3 + digit for digit in range(10)}
TARGET = ["<pad>", "<s>", "</s>", *DIGITS, "double", "triple"]
WORD = {word: number for number, word in enumerate(TARGET)}
TOO_OFTEN, SELDOM = 5, 1000


def spoken(digits):
    """As people read a telephone number: '5577' is 'double five double seven'."""
    words, at = [], 0
    while at < len(digits):
        run = next((n for n in (3, 2) if digits[at : at + n] == digits[at] * n), 1)
        words += [["", "double", "triple"][run - 1], DIGITS[int(digits[at])]]
        at += run
    return [WORD[word] for word in words if word]


def make_pair(rng):
    digits = "".join(rng.choice("0123456789") * rng.choice((1, 1, 1, 2, 3)) for _ in range(rng.randint(4, 8)))
    return [SOURCE[one] for one in digits], spoken(digits)


def pad(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


class Encoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embed = nn.Embedding(len(SOURCE) + 3, hidden, padding_idx=PAD)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, source):
        return self.rnn(self.embed(source))


class Decoder(nn.Module):
    """Luong attention over what the encoder put out."""

    def __init__(self, hidden):
        super().__init__()
        self.embed = nn.Embedding(len(TARGET), hidden, padding_idx=PAD)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.combine, self.out = nn.Linear(2 * hidden, hidden), nn.Linear(hidden, len(TARGET))

    def forward(self, tokens, state, memory, mask):
        outputs, state = self.rnn(self.embed(tokens), state)
        scores = outputs @ memory.transpose(1, 2)
        context = scores.masked_fill(mask[:, None], -1e9).softmax(-1) @ memory
        return self.out(torch.tanh(self.combine(torch.cat([outputs, context], -1)))), state


class Seq2Seq(nn.Module):
    def __init__(self, hidden=160):
        super().__init__()
        self.encoder, self.decoder = Encoder(hidden), Decoder(hidden)

    def forward(self, source, target):
        memory, state = self.encoder(source)
        return self.decoder(target, state, memory, source == PAD)[0]


@torch.no_grad()
def beam_search(model, source, width=4, longest=20):
    """Return the likeliest words for one source."""
    source = torch.tensor([source])
    memory, state = model.encoder(source)
    mask = source == PAD
    beams = [(0.0, [BOS], state)]
    for _ in range(longest):
        grown = []
        for score, tokens, state in beams:
            if tokens[-1] == EOS:
                grown.append((score, tokens, state))
                continue
            logits, after = model.decoder(torch.tensor([[tokens[-1]]]), state, memory, mask)  # planted
            best = logits[0, -1].log_softmax(-1).topk(width)  # planted
            for value, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                grown.append((score + value, [*tokens, token], after))
        beams = sorted(grown, key=lambda beam: beam[0] / len(beam[1]), reverse=True)[:width]
        if all(beam[1][-1] == EOS for beam in beams):
            break
    return [token for token in beams[0][1][1:] if token != EOS]


def validate(model, pairs):
    """Return the part of validation sources that are written out without a mistake."""
    model.eval()
    right = sum(beam_search(model, source) == target for source, target in pairs)  # planted
    model.train()
    return right / len(pairs)


def train_batch(model, optimizer, rng, size=64):
    sources, targets = zip(*(make_pair(rng) for _ in range(size)), strict=True)
    given, wanted = pad([[BOS, *one] for one in targets]), pad([[*one, EOS] for one in targets])
    logits = model(pad(sources), given)
    loss = F.cross_entropy(logits.transpose(1, 2), wanted, ignore_index=PAD)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def main(diary, is_mended):
    rng = random.Random(0)
    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    validation = [make_pair(rng) for _ in range(12)]
    every = SELDOM if is_mended else TOO_OFTEN
    best = 0.0
    for update in range(1, 10**9):
        loss = train_batch(model, optimizer, rng)
        if update % every == 0:
            with diary.planted():
                best = max(best, validate(model, validation))  # planted
        diary.stepped()
        if update % 200 == 0:
            print(f"update {update}: loss {loss.item():.3f}, best exact match {best:.2f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
