"""Tours by a policy gradient, in the style of "Attention, learn to solve routing problems", with several tours a map.

Nothing is planted: tours are decoded for the whole batch at once, and everything of a city is computed once per tour.
"""

import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CITIES, BATCH, SAMPLES, WIDTH, HEADS = 16, 16, 4, 96, 6


class Encoder(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.embed = nn.Linear(2, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 3 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, cities):
        return self.layers(self.embed(cities))


class Decoder(nn.Module):
    """Point to the next city, by the graph, the first city and the last one."""

    def __init__(self):
        super().__init__()
        self.keys_values = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.graph, self.context = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.mix = nn.Linear(WIDTH, WIDTH, bias=False)
        self.start = nn.Parameter(torch.empty(2 * WIDTH).uniform_(-0.1, 0.1))

    def forward(self, nodes, copies):
        graph = self.graph(nodes.mean(1)).repeat_interleave(copies, 0)
        keys, values, logit_keys = self.keys_values(nodes).repeat_interleave(copies, 0).chunk(3, dim=-1)
        nodes = nodes.repeat_interleave(copies, 0)
        count, rows = len(nodes), torch.arange(len(nodes))
        keys, values = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (keys, values))
        is_left = torch.ones(count, CITIES, dtype=torch.bool)
        context, tour, log_likelihood = self.start.expand(count, -1), [], 0.0
        for _ in range(CITIES):
            query = graph + self.context(context)
            query = query.reshape(count, HEADS, 1, WIDTH // HEADS)
            glimpse = F.scaled_dot_product_attention(query, keys, values, attn_mask=is_left[:, None, None])
            glimpse = self.mix(glimpse.reshape(count, WIDTH))
            logits = 10 * torch.tanh((logit_keys @ glimpse[:, :, None]).squeeze(-1) / math.sqrt(WIDTH))
            log_p = logits.masked_fill(~is_left, -1e9).log_softmax(-1)
            city = log_p.detach().exp().multinomial(1)
            log_likelihood = log_likelihood + log_p.gather(1, city).squeeze(1)
            tour.append(city.squeeze(1))
            is_left = is_left.scatter(1, city, False)
            context = torch.cat([nodes[rows, tour[0]], nodes[rows, tour[-1]]], dim=-1)
        return torch.stack(tour, dim=1), log_likelihood


class AttentionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, cities, copies):
        return self.decoder(self.encoder(cities), copies)


def tour_lengths(cities, tours):
    ordered = cities.gather(1, tours[:, :, None].expand(-1, -1, 2))
    return (ordered - ordered.roll(-1, dims=1)).norm(dim=-1).sum(1)


def train_batch(model, optimizer, scheduler):
    """Learn from several tours of each map: their mean is what each of them is compared with."""
    cities = torch.rand(BATCH, CITIES, 2)
    tours, log_likelihood = model(cities, SAMPLES)
    costs = tour_lengths(cities.repeat_interleave(SAMPLES, 0), tours).unflatten(0, (BATCH, SAMPLES))
    advantages = (costs - costs.mean(1, keepdim=True)).flatten()
    loss = (advantages.detach() * log_likelihood).mean()
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    return costs.detach().mean(), norm


def main():
    diary, _ = begin()
    torch.manual_seed(1234)
    torch.set_num_threads(1)
    model = AttentionModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9999)
    step = 0
    while True:
        cost, norm = train_batch(model, optimizer, scheduler)
        step += 1
        if step % 50 == 0:
            print(f"step {step}: mean tour {cost.item():.3f} gradient norm {norm.item():.3f}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
