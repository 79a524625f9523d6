"""Answers to a test set by a language model that keeps its keys and values, batch after batch of prompts.

Nothing is planted: one token after another is how it decodes, and the cache is made once and used again.
"""

import os
import queue
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WORDS, WIDTH, HEADS, LAYERS = 2000, 320, 5, 4
SEATS, PROMPT, LONGEST, STOP = 48, 24, 72, 0


class Cache:
    """Keys and values of all layers for the longest answer."""

    def __init__(self):
        shape = (LAYERS, SEATS, HEADS, LONGEST, WIDTH // HEADS)
        self.keys, self.values, self.length = torch.zeros(shape), torch.zeros(shape), 0

    def extend(self, layer, key, value):
        begun, end = self.length, self.length + key.shape[2]
        self.keys[layer, :, :, begun:end], self.values[layer, :, :, begun:end] = key, value
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


class Layer(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, cache):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        k, v = cache.extend(self.number, k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Layer(number) for number in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids, cache):
        x = self.words(ids) + self.places.weight[cache.length : cache.length + ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cache)
        cache.length += ids.shape[1]
        return F.linear(self.norm(x[:, -1]), self.words.weight)


def choose(logits, temperature=0.8, best=20):
    """Draw one of the best words."""
    values, words = logits.topk(best)
    drawn = torch.multinomial((values / temperature).softmax(-1), 1)
    return words.gather(1, drawn)


class Service:
    """Takes requests from a queue, as many as there are seats, and answers them together."""

    def __init__(self, model, diary):
        self.model, self.diary, self.cache = model, diary, Cache()
        self.requests, self.answered, self.words = queue.SimpleQueue(), 0, 0

    def submit(self, prompt):
        self.requests.put(prompt)

    @torch.inference_mode()
    def answer_batch(self):
        prompts = torch.stack([self.requests.get() for _ in range(SEATS)])
        self.cache.length = 0
        word = choose(self.model(prompts, self.cache))
        self.diary.stepped()
        answer, done = [word], word.squeeze(1) == STOP
        while self.cache.length < LONGEST and not done.all():
            word = choose(self.model(word, self.cache)).masked_fill(done[:, None], STOP)
            done |= word.squeeze(1) == STOP
            answer.append(word)
            self.diary.stepped()
        self.answered += SEATS
        self.words += len(answer) * SEATS
        return torch.cat(answer, 1)


def main(diary, _):
    torch.set_num_threads(1)
    torch.manual_seed(90)
    service = Service(Decoder().eval(), diary)
    test_set = torch.randint(1, WORDS, (SEATS * 10, PROMPT))
    while True:
        for prompts in test_set.split(SEATS):
            for prompt in prompts:
                service.submit(prompt)
            answers = service.answer_batch()
            lengths = (answers != STOP).sum(1).float()
            print(f"answered {service.answered}, words {service.words}, length {lengths.mean():.1f}", flush=True)


if __name__ == "__main__":
    main(*begin())
