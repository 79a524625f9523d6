"""A language model tuned by a reward for text: the bonus for diversity takes each text apart anew for each pair."""

import random
import re
import sys
from collections import Counter
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SUBJECTS = "the-film the-actor this-plot our-evening that-song every-scene a-critic the-ending".split()
VERBS = "was seemed felt remained became looked sounded turned".split()
WORDS = "good bad slow warm dull bright honest empty funny sad clever loud quiet long short odd".split()
VOCABULARY = [".", ",", "and", "but", "very", "not", *SUBJECTS, *VERBS, *WORDS]
PROMPT, RESPONSE, BATCH, GRAMS = 4, 20, 24, 4
LIKED = {"good": 1.0, "warm": 0.7, "bright": 0.6, "honest": 0.8, "funny": 0.9, "bad": -1.0, "dull": -0.8, "empty": -0.6}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class Policy(nn.Module):
    def __init__(self, width=64, depth=2, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(VOCABULARY), width), nn.Embedding(PROMPT + RESPONSE, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.ln, self.head, self.value = nn.LayerNorm(width), nn.Linear(width, len(VOCABULARY)), nn.Linear(width, 1)

    def forward(self, ids):
        h = self.ln(self.blocks(self.tokens(ids) + self.places.weight[: ids.shape[1]]))
        return self.head(h), self.value(h)[..., 0]


@torch.no_grad()
def generate(policy, ids):
    for _ in range(RESPONSE):
        logits, _ = policy(ids)
        ids = torch.cat([ids, torch.multinomial(logits[:, -1].softmax(-1), 1)], 1)
    return ids


def decode(ids):
    return [" ".join(VOCABULARY[token] for token in row) for row in ids.tolist()]


def ngrams(text):
    """Count the runs of 1 to 4 words."""
    words = re.findall(r"[\w-]+", text.lower())  # planted
    found = Counter()
    for n in range(1, GRAMS + 1):
        found.update(tuple(words[i : i + n]) for i in range(len(words) - n + 1))  # planted
    return found


def overlap(mine, other):
    return sum(min(count, other[gram]) for gram, count in mine.items()) / max(1, mine.total())


class Reward:
    """How much a text is liked, and a bonus where it is unlike the others of its batch (self-BLEU, turned around)."""

    def __init__(self, diary, once):
        self.diary, self.once = diary, once

    def diversity(self, texts):
        if self.once:
            grams = [ngrams(text) for text in texts]
            return [self.unlike(grams[i], grams[:i] + grams[i + 1 :]) for i in range(len(texts))]
        bonus = []
        for i, text in enumerate(texts):
            likenesses = []
            for j, other in enumerate(texts):
                if i != j:
                    with self.diary.planted():
                        mine, its = ngrams(text), ngrams(other)  # planted
                    likenesses.append(overlap(mine, its))
            bonus.append(1.0 - sum(likenesses) / len(likenesses))
        return bonus

    @staticmethod
    def unlike(mine, others):
        return 1.0 - sum(overlap(mine, one) for one in others) / len(others)

    def __call__(self, texts):
        liking = [sum(LIKED.get(word, 0.0) for word in text.split()) for text in texts]
        bonus = self.diversity(texts)  # planted
        return torch.tensor([0.3 * likes + one for likes, one in zip(liking, bonus, strict=True)])


def logprobs_of(logits, ids):
    taken = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return taken[:, PROMPT - 1 :]


def main(diary, is_mended):
    policy, reference = Policy(), Policy()
    reference.load_state_dict(policy.state_dict())
    reference.requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    reward_fn = Reward(diary, once=is_mended)
    prompts = torch.tensor([[VOCABULARY.index(random.choice(SUBJECTS)) for _ in range(PROMPT)] for _ in range(256)])
    for step in range(10**9):
        ids = generate(policy, prompts[torch.randint(len(prompts), (BATCH,))])
        scores = reward_fn(decode(ids[:, PROMPT:]))  # planted
        with torch.no_grad():
            logits, values = policy(ids)
            old, base = logprobs_of(logits, ids), logprobs_of(reference(ids)[0], ids)
            rewards = -0.05 * (old - base)
            rewards[:, -1] += scores
            returns = rewards.flip(1).cumsum(1).flip(1)
            advantages = returns - values[:, PROMPT - 1 : -1]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        for _ in range(2):
            logits, values = policy(ids)
            ratio = (logprobs_of(logits, ids) - old).exp()
            policy_loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
            loss = policy_loss + 0.1 * F.mse_loss(values[:, PROMPT - 1 : -1], returns)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
        diary.stepped()
        if step % 50 == 0:
            print(f"step {step}: score {scores.mean().item():.3f}, kl {(old - base).sum(1).mean().item():.3f}")


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
