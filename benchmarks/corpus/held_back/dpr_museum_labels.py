"""Dense passage retrieval over museum labels, after DPR: an encoder a side, and hard negatives by BM25.

The hard negative of each question is looked for again in each step, with BM25 written out in Python over the whole
collection.
"""

import math
import random
import sys
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, LABELS, QUESTIONS = 4_000, 1_000, 1_200
LABEL_WORDS, QUESTION_WORDS = 40, 12


class Collection:
    """Labels with topics, and questions that are asked about one label each."""

    def __init__(self, seed=3):
        rng = random.Random(seed)
        topics = [[rng.randrange(1, VOCABULARY) for _ in range(60)] for _ in range(40)]
        self.labels = []
        for _ in range(LABELS):
            topic = rng.choice(topics)
            self.labels.append(
                [rng.choice(topic) if rng.random() < 0.6 else rng.randrange(1, VOCABULARY) for _ in range(LABEL_WORDS)]
            )
        self.answers = [rng.randrange(LABELS) for _ in range(QUESTIONS)]
        self.questions = [
            [
                word if rng.random() < 0.8 else rng.randrange(1, VOCABULARY)
                for word in rng.sample(self.labels[answer], 12)
            ]
            for answer in self.answers
        ]


class BM25:
    def __init__(self, documents, k1=1.2, b=0.75):
        self.k1, self.b = k1, b
        self.counts = [Counter(document) for document in documents]
        self.lengths = [len(document) for document in documents]
        self.mean_length = sum(self.lengths) / len(documents)
        seen = Counter(word for counts in self.counts for word in counts)
        self.idf = {word: math.log(1 + (len(documents) - n + 0.5) / (n + 0.5)) for word, n in seen.items()}

    def scores(self, question):
        found = []
        for counts, length in zip(self.counts, self.lengths, strict=True):
            norm = self.k1 * (1 - self.b + self.b * length / self.mean_length)
            score = 0.0
            for word in question:  # planted
                count = counts.get(word, 0)  # planted
                if count:
                    score += self.idf[word] * count * (self.k1 + 1) / (count + norm)
            found.append(score)
        return found

    def hard_negative(self, question, answer):
        scores = self.scores(question)  # planted
        scores[answer] = -1.0
        return max(range(len(scores)), key=scores.__getitem__)


class Encoder(nn.Module):
    def __init__(self, length, dim=96, depth=2):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, dim)
        self.places = nn.Parameter(0.02 * torch.randn(length, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        return self.norm(self.layers(self.words(ids) + self.places)).mean(1)


def main(diary, is_mended):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    collection = Collection()
    index = BM25(collection.labels)
    labels, questions = torch.tensor(collection.labels), torch.tensor(collection.questions)
    answers = torch.tensor(collection.answers)
    asking, telling = Encoder(QUESTION_WORDS), Encoder(LABEL_WORDS)
    parameters = [*asking.parameters(), *telling.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=2e-4, fused=True)
    mined = None
    if is_mended:
        pairs = zip(collection.questions, collection.answers, strict=True)
        mined = torch.tensor([index.hard_negative(question, answer) for question, answer in pairs])
    step, size = 0, 16
    while True:
        order = torch.randperm(QUESTIONS)
        for rows in order.split(size):
            if mined is not None:
                negatives = mined[rows]
            else:
                with diary.planted():
                    chosen = [(collection.questions[row], collection.answers[row]) for row in rows.tolist()]
                    negatives = torch.tensor([index.hard_negative(*pair) for pair in chosen])  # planted
            passages = telling(labels[torch.cat([answers[rows], negatives])])
            scores = asking(questions[rows]) @ passages.T / math.sqrt(passages.shape[1])
            loss = F.cross_entropy(scores, torch.arange(len(rows)))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 2.0)
            optimizer.step()
            step += 1
            diary.stepped()
            if step % 200 == 0:
                right = (scores.argmax(1) == torch.arange(len(rows))).float().mean()
                print(f"step {step} loss {loss.item():.4f} right {right.item():.3f}", flush=True)


if __name__ == "__main__":
    main(*begin())
