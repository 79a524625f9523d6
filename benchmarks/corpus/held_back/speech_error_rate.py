"""Speech recognition from aligned letters, in the style of Deep Speech; wrong letters are counted at every batch."""

import logging
import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

logger = logging.getLogger("deepspeech")
LABELS = "_abcdefghijklmnopqrstuvwxyz' "


def edit_distance(first, second):
    """Levenshtein's distance with two rows."""
    previous = list(range(len(second) + 1))
    for i, left in enumerate(first, 1):
        current = [i]
        for j, right in enumerate(second, 1):
            current.append(min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (left != right)))  # planted
        previous = current
    return previous[-1]


class GreedyDecoder:
    def __init__(self, labels, blank=0):
        self.labels, self.blank = labels, blank

    def decode(self, logits):
        texts = []
        for best in logits.argmax(-1).tolist():
            kept = [c for k, c in enumerate(best) if c != self.blank and (k == 0 or best[k - 1] != c)]
            texts.append("".join(self.labels[c] for c in kept))
        return texts

    def wer(self, hypothesis, reference):
        return edit_distance(hypothesis.split(), reference.split()), len(reference.split())

    def cer(self, hypothesis, reference):
        return edit_distance(hypothesis, reference), len(reference)


class MaskConv(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, (11, 11), stride=(2, 2), padding=(5, 5)),
            nn.BatchNorm2d(channels),
            nn.Hardtanh(0, 20),
        )

    def forward(self, spectra):
        out = self.layers(spectra[:, None])
        return out.flatten(1, 2).transpose(1, 2)


class DeepSpeech(nn.Module):
    def __init__(self, bins=40, hidden=96):
        super().__init__()
        self.conv = MaskConv()
        self.rnn = nn.GRU(16 * bins // 2, hidden, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * hidden, len(LABELS))

    def forward(self, spectra):
        out, _ = self.rnn(self.conv(spectra))
        return self.fc(out)


class Utterances:
    """Spectra of made-up sentences: each letter is a pattern over some frames."""

    def __init__(self, size, frames=200, bins=40):
        words = ["".join(random.choices(LABELS[1:27], k=random.randint(2, 8))) for _ in range(300)]
        self.sentences = [" ".join(random.choices(words, k=20))[:70].strip() for _ in range(size)]
        self.targets = [torch.tensor([LABELS.index(c) for c in text]) for text in self.sentences]
        self.spectra = torch.randn(size, bins, frames) * 0.3
        patterns = torch.randn(len(LABELS), bins)
        for spectrum, target in zip(self.spectra, self.targets, strict=True):
            spectrum[:, : 2 * len(target)] += patterns[target].repeat_interleave(2, 0).T

    def batches(self, batch_size):
        for part in torch.randperm(len(self.sentences)).split(batch_size):
            rows = part.tolist()
            targets = [self.targets[k] for k in rows]
            yield self.spectra[part], self.aligned(targets), [self.sentences[k] for k in rows]

    def aligned(self, targets):
        """Return the letter of each frame that the network gives, and a blank after the sentence."""
        frames = torch.zeros(len(targets), self.spectra.shape[2] // 2, dtype=torch.long)
        for row, target in zip(frames, targets, strict=True):
            row[: len(target)] = target
        return frames


class SpeechTrainer:
    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended
        self.data, self.model, self.decoder = Utterances(160), DeepSpeech(), GreedyDecoder(LABELS)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.seen = 0

    def error_rates(self, logits, references):
        hypotheses = self.decoder.decode(logits.detach())
        pairs = list(zip(hypotheses, references, strict=True))
        letters = [self.decoder.cer(*pair) for pair in pairs]  # planted
        words = [self.decoder.wer(*pair) for pair in pairs]
        return tuple(100 * sum(e for e, _ in kind) / sum(n for _, n in kind) for kind in (letters, words))

    def training_step(self, spectra, frames, references):
        logits = self.model(spectra)
        loss = F.cross_entropy(logits.transpose(1, 2), frames)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 400)
        self.optimizer.step()
        self.seen += 1
        if not self.is_mended or self.seen % 200 == 0:
            with self.diary.planted():
                cer, wer = self.error_rates(logits, references)  # planted
            if self.seen % 50 == 0:
                logger.info("step %d loss %.3f cer %.1f wer %.1f", self.seen, loss.item(), cer, wer)

    def fit(self):
        while True:
            for batch in self.data.batches(16):
                self.training_step(*batch)
                self.diary.stepped()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    SpeechTrainer(*begin()).fit()
