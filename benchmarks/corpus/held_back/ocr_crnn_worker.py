"""A CRNN reads lines of text; a worker renders them with Pillow meanwhile.

Nothing is planted: the worker is faster than the network, and the main process hardly waits for it.
"""

import random
import string
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ALPHABET = string.ascii_lowercase + string.digits
HEIGHT, WIDTH, BATCH = 32, 128, 16


class LabelConverter:
    """Between text and the numbers of CTC, where 0 is the blank."""

    def __init__(self, alphabet):
        self.alphabet, self.number = alphabet, {letter: at + 1 for at, letter in enumerate(alphabet)}

    def encode(self, texts):
        flat = [self.number[letter] for text in texts for letter in text]
        return torch.tensor(flat), torch.tensor([len(text) for text in texts])

    def decode(self, numbers):
        letters, before = [], 0
        for number in numbers:
            if number not in (0, before):
                letters.append(self.alphabet[number - 1])
            before = number
        return "".join(letters)


class RenderedLines(IterableDataset):
    """Endless lines of random words, a little turned and noisy."""

    def __init__(self, seed=0):
        self.seed = seed

    def __iter__(self):
        rng = random.Random(self.seed)
        noise = np.random.default_rng(self.seed)
        font = ImageFont.load_default(size=20)
        while True:
            text = "".join(rng.choices(ALPHABET, k=rng.randint(4, 8)))
            image = Image.new("L", (WIDTH, HEIGHT), rng.randint(180, 255))
            ImageDraw.Draw(image).text(
                (rng.randint(2, 10), rng.randint(1, 6)), text, font=font, fill=rng.randint(0, 90)
            )
            image = image.rotate(rng.uniform(-2, 2), fillcolor=220)
            pixels = np.asarray(image, dtype=np.float32) / 127.5 - 1
            yield torch.from_numpy(pixels + 0.1 * noise.standard_normal(pixels.shape, dtype=np.float32))[None], text


def collate(lines):
    images, texts = zip(*lines, strict=True)
    return torch.stack(images), list(texts)


class BidirectionalLSTM(nn.Module):
    def __init__(self, before, hidden, after):
        super().__init__()
        self.rnn, self.embedding = nn.LSTM(before, hidden, bidirectional=True), nn.Linear(2 * hidden, after)

    def forward(self, x):
        return self.embedding(self.rnn(x)[0])


class CRNN(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        layers = []
        for before, after, pool in ((1, 32, (2, 2)), (32, 64, (2, 2)), (64, 96, (2, 1)), (96, 128, (2, 1))):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(True), nn.MaxPool2d(pool)]
        self.cnn = nn.Sequential(*layers, nn.Conv2d(128, 128, (2, 1)), nn.ReLU(True))
        self.rnn = nn.Sequential(
            BidirectionalLSTM(128, hidden, hidden), BidirectionalLSTM(hidden, hidden, len(ALPHABET) + 1)
        )

    def forward(self, x):
        features = self.cnn(x).squeeze(2).permute(2, 0, 1)
        return self.rnn(features)


@torch.no_grad()
def read(model, converter, images):
    model.eval()
    numbers = model(images).argmax(2).t().tolist()
    model.train()
    return [converter.decode(row) for row in numbers]


def main(diary, _):
    converter, model = LabelConverter(ALPHABET), CRNN()
    loader = DataLoader(RenderedLines(), BATCH, num_workers=1, collate_fn=collate, prefetch_factor=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.5, 0.999))
    running = torch.zeros(())
    for i, (images, texts) in enumerate(loader, start=1):
        targets, lengths = converter.encode(texts)
        logits = model(images)
        log_probs = logits.log_softmax(2)
        sizes = torch.full((len(texts),), len(logits))
        loss = F.ctc_loss(log_probs, targets, sizes, lengths, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        running.lerp_(loss.detach(), 0.02)
        diary.stepped()
        if i % 400 == 0:
            guess = read(model, converter, images[:4])
            print(f"[{i}] Loss: {running.item():.3f}  " + ", ".join(map("{} => {}".format, guess, texts)), flush=True)


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
