"""Mult-VAE recommends museums from lists of visits, all at the level of the module. Nothing is planted.

The lists are rows of one table, filled up; the encoder's first layer adds up rows of an embedding, and the
loss takes only visited columns.
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

MUSEUMS, VISITORS, LONGEST = 3000, 12_000, 40


class MultVAE(nn.Module):
    def __init__(self, hidden=256, latent=96):
        super().__init__()
        self.visited = nn.EmbeddingBag(MUSEUMS + 1, hidden, mode="sum", padding_idx=MUSEUMS)
        nn.init.normal_(self.visited.weight, std=0.05)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.moments = nn.Linear(hidden, 2 * latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, MUSEUMS))

    def forward(self, visits, lengths):
        sums = self.visited(visits) * lengths.rsqrt()[:, None]
        mean, logvar = self.moments(torch.tanh(sums + self.bias)).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp() if self.training else mean
        return self.decoder(z), mean, logvar


def visit_lists():
    taste = torch.randint(60, (VISITORS, 1)) * 50
    near = taste + (torch.rand(VISITORS, LONGEST) ** 2 * 50).long()
    lists = torch.where(torch.rand(VISITORS, LONGEST) < 0.85, near, torch.randint(MUSEUMS, near.shape))
    lengths = torch.randint(8, LONGEST + 1, (VISITORS, 1))
    return lists.masked_fill(torch.arange(LONGEST) >= lengths, MUSEUMS), lengths.squeeze(1).float()


def loss_of(logits, mean, logvar, visits, lengths, anneal):
    present = visits < MUSEUMS
    chosen = logits.gather(1, visits.clamp(max=MUSEUMS - 1)) * present
    reconstruction = (lengths * logits.logsumexp(1) - chosen.sum(1)).mean()
    kld = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum(1).mean()
    return reconstruction + anneal * kld


diary, _ = begin()
torch.manual_seed(98)
torch.set_num_threads(1)
visits, lengths = visit_lists()
model = MultVAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
batch_size, update_count, anneal_cap, total_anneal_steps = 384, 0, 0.2, 20_000

while True:
    order = torch.randperm(VISITORS)
    for rows in order.split(batch_size)[:-1]:
        lists, counts = visits[rows], lengths[rows]
        dropped = lists.masked_fill(torch.rand(lists.shape) < 0.3, MUSEUMS)
        logits, mean, logvar = model(dropped, counts)
        anneal = min(anneal_cap, update_count / total_anneal_steps)
        loss = loss_of(logits, mean, logvar, lists, counts, anneal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_count += 1
        if update_count % 100 == 0:
            print(f"update {update_count} loss {loss.item():.2f} anneal {anneal:.3f}", flush=True)
        diary.stepped()
