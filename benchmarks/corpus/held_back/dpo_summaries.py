"""Direct preference optimization of a small summarizer; the frozen reference scores its fixed pairs in each epoch."""

import copy
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

VOCABULARY, LENGTH, PROMPT = 256, 96, 48
PAIRS, BATCH = 480, 8
BETA = 0.1


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CausalLM(nn.Module):
    def __init__(self, width=96, layers=3, heads=4):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.layers(self.tokens(ids) + self.places[: ids.shape[1]])))


class PreferencePairs:
    """Articles, each with a summary that people liked and one that they did not."""

    def __init__(self):
        articles = torch.randint(2, VOCABULARY, (PAIRS, PROMPT))
        liked = articles[:, : LENGTH - PROMPT].roll(1, dims=1)
        other = torch.randint(2, VOCABULARY, (PAIRS, LENGTH - PROMPT))
        self.chosen = torch.cat([articles, liked], 1)
        self.rejected = torch.cat([articles, other], 1)

    def batches(self):
        for rows in torch.randperm(PAIRS).split(BATCH):
            yield rows, self.chosen[rows], self.rejected[rows]


def sequence_logps(model, ids):
    """Return the log-probability of each sequence's summary, given its article."""
    logits = model(ids[:, :-1])[:, PROMPT - 1 :]
    targets = ids[:, PROMPT:]
    return -F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").sum(1)


def dpo_loss(policy, reference):
    """Return the loss and how often the policy prefers as people did: first halves are chosen, second ones rejected."""
    chosen, rejected = (policy - reference).chunk(2)
    margin = BETA * (chosen - rejected)
    return -F.logsigmoid(margin).mean(), (margin.detach() > 0).float().mean()


class DPOTrainer:
    def __init__(self, model, pairs, diary, is_mended):
        self.model, self.pairs, self.diary = model, pairs, diary
        self.ref_model = copy.deepcopy(model).eval().requires_grad_(False)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
        self.stored = self.score_all() if is_mended else None
        self.steps = 0

    @torch.no_grad()
    def score_all(self):
        parts = zip(self.pairs.chosen.split(64), self.pairs.rejected.split(64), strict=True)
        return torch.cat([torch.stack([sequence_logps(self.ref_model, one) for one in part], 1) for part in parts])

    @torch.no_grad()
    def reference_logps(self, ids):
        return sequence_logps(self.ref_model, ids)  # planted

    def training_step(self, rows, chosen, rejected):
        ids = torch.cat([chosen, rejected])
        policy = sequence_logps(self.model, ids)
        if self.stored is not None:
            reference = self.stored[rows].T.flatten()
        else:
            with self.diary.planted():
                reference = self.reference_logps(ids)  # planted
        loss, preferred = dpo_loss(policy, reference)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), preferred

    def train(self):
        sums = torch.zeros(2)
        while True:
            for rows, chosen, rejected in self.pairs.batches():
                sums += torch.stack(self.training_step(rows, chosen, rejected))
                self.steps += 1
                if self.steps % 50 == 0:
                    loss, preferred = (sums / 50).tolist()
                    print(f"step {self.steps}: loss {loss:.4f} rewards/accuracies {preferred:.3f}", flush=True)
                    sums.zero_()
                self.diary.stepped()


def main():
    diary, is_mended = begin()
    torch.manual_seed(77)
    torch.set_num_threads(1)
    DPOTrainer(CausalLM(), PreferencePairs(), diary, is_mended).train()


if __name__ == "__main__":
    main()
