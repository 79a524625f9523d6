"""A bi-encoder of questions and answers under Accelerate, with hard negatives that BM25 finds for each batch."""

import math
import random
import sys
from collections import Counter
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WORDS, TOPICS, ANSWERS, QUESTIONS = 3000, 40, 1200, 1600


def make_faq():
    """Answers lean on the words of a topic, questions on those of their answer."""
    rng = random.Random(12)
    answers = []
    for number in range(ANSWERS):
        first = (number % TOPICS) * 60 + 100
        answers.append(
            [rng.randrange(first, first + 60) if rng.random() < 0.6 else rng.randrange(1, 100) for _ in range(40)]
        )
    questions = []
    for _ in range(QUESTIONS):
        number = rng.randrange(ANSWERS)
        questions.append(([*rng.sample(answers[number], 6), *(rng.randrange(1, WORDS) for _ in range(4))], number))
    return questions, answers


class BM25:
    def __init__(self, documents, k1=1.5, b=0.75):
        self.counts = [Counter(document) for document in documents]
        self.lengths = [len(document) for document in documents]
        self.mean_length = sum(self.lengths) / len(documents)
        frequency = Counter(word for counts in self.counts for word in counts)
        self.idf = {word: math.log(1 + (len(documents) - n + 0.5) / (n + 0.5)) for word, n in frequency.items()}
        self.k1, self.b = k1, b

    def scores(self, query):
        scores = []
        for counts, length in zip(self.counts, self.lengths, strict=True):
            norm = self.k1 * (1 - self.b + self.b * length / self.mean_length)
            score = 0.0
            for word in query:
                if word in counts:  # planted
                    score += self.idf[word] * counts[word] * (self.k1 + 1) / (counts[word] + norm)
            scores.append(score)
        return scores

    def hard_negative(self, query, right):
        """Return the answer that is nearest to the query and is not the right one."""
        scores = self.scores(query)
        scores[right] = -1.0
        return max(range(len(scores)), key=scores.__getitem__)


class Collator:
    def __init__(self, questions, answers, diary, is_mended):
        self.answers, self.diary = answers, diary
        self.index = BM25(answers)
        self.known = None
        if is_mended:
            self.known = {tuple(words): self.index.hard_negative(words, right) for words, right in questions}

    def mine(self, batch):
        if self.known is not None:
            return [self.known[tuple(words)] for words, _ in batch]
        with self.diary.planted():
            return [self.index.hard_negative(words, right) for words, right in batch]  # planted

    def __call__(self, batch):
        negatives = self.mine(batch)
        queries = torch.tensor([words for words, _ in batch])
        passages = [self.answers[right] for _, right in batch] + [self.answers[number] for number in negatives]
        return {"queries": queries, "passages": torch.tensor(passages)}


class Encoder(nn.Module):
    def __init__(self, dim=64, layers=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, dim)
        self.places = nn.Parameter(torch.randn(64, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 3 * dim, 0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids):
        x = self.layers(self.words(ids) + self.places[: ids.shape[1]])
        return F.normalize(x.mean(1), dim=-1)


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    questions, answers = make_faq()
    collator = Collator(questions, answers, diary, is_mended)
    loader = DataLoader(questions, batch_size=16, shuffle=True, collate_fn=collator, drop_last=True)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = 0
    for _ in range(1_000_000):
        model.train()
        for batch in loader:  # planted
            scores = model(batch["queries"]) @ model(batch["passages"]).T / 0.05
            loss = F.cross_entropy(scores, torch.arange(len(scores)))
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            diary.stepped()
            if steps % 100 == 0:
                accelerator.print(f"step {steps} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
