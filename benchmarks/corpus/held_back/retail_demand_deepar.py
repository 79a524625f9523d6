"""Forecasts of demand by a recurrent network with negative binomial likelihood, windows drawn by a generator.

Nothing is planted: windows are views of one array, futures are drawn once in 200 steps, the recurrence is one call.
"""

import logging
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

logger = logging.getLogger("demand")
HISTORY, HORIZON, BATCH = 84, 14, 40


class Shop:
    """Daily sales of articles, with weeks, years and a level of their own."""

    def __init__(self, articles=300, days=1100):
        day = torch.arange(days)
        level = torch.exp(torch.randn(articles, 1) * 0.8 + 2)
        week = 1 + 0.4 * torch.sin(6.2832 * (day + torch.randint(0, 7, (articles, 1))) / 7)
        year = 1 + 0.3 * torch.sin(6.2832 * day / 365 + torch.rand(articles, 1))
        self.sales = torch.poisson(level * week * year)
        self.calendar = torch.stack([f(6.2832 * day / p) for p in (7, 30.4, 365) for f in (torch.sin, torch.cos)], 1)
        self.windows = self.sales.unfold(1, HISTORY + HORIZON, 1)
        self.days = self.calendar.unfold(0, HISTORY + HORIZON, 1).transpose(1, 2)

    def training(self):
        last = self.windows.shape[1] - HORIZON
        while True:
            article, start = torch.randint(0, len(self.sales), (BATCH,)), torch.randint(0, last, (BATCH,))
            yield article, self.windows[article, start], self.days[start]

    def latest(self, count=24):
        article = torch.randperm(len(self.sales))[:count]
        return article, self.windows[article, -1], self.days[-1].expand(count, -1, -1)


class DeepAR(nn.Module):
    def __init__(self, articles=300, width=112):
        super().__init__()
        self.article = nn.Embedding(articles, 16)
        self.rnn = nn.GRU(1 + 6 + 16, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, 2)

    def forward(self, article, before, days, state=None):
        about = self.article(article)[:, None].expand(-1, before.shape[1], -1)
        h, state = self.rnn(torch.cat([before[..., None], days, about], 2), state)
        mean, alpha = nn.functional.softplus(self.out(h)).unbind(2)
        return mean + 1e-4, alpha + 1e-3, state

    def loss(self, article, window, days):
        scale = 1 + window[:, :HISTORY].mean(1, keepdim=True)
        mean, alpha, _ = self(article, window[:, :-1] / scale, days[:, 1:])
        mean, y, r = mean * scale, window[:, 1:], 1 / alpha
        chance = torch.lgamma(y + r) - torch.lgamma(r) - torch.lgamma(y + 1)
        chance = chance + r * torch.log(r / (r + mean)) + y * torch.log(mean / (r + mean))
        return -chance.mean()

    @torch.inference_mode()
    def futures(self, article, window, days, draws=20):
        article, window = article.repeat_interleave(draws), window.repeat_interleave(draws, 0)
        days = days.repeat_interleave(draws, 0)
        scale = 1 + window[:, :HISTORY].mean(1, keepdim=True)
        state, path = None, []
        before, at = window[:, : HISTORY - 1] / scale, days[:, 1:HISTORY]
        _, _, state = self(article, before, at, state)
        y = window[:, HISTORY - 1 : HISTORY]
        for t in range(HISTORY, HISTORY + HORIZON):
            mean, alpha, state = self(article, y / scale, days[:, t : t + 1], state)
            gamma = torch._standard_gamma(1 / alpha) * alpha * mean * scale
            y = torch.poisson(gamma)
            path.append(y)
        return torch.cat(path, 1).view(-1, draws, HORIZON)


def pinball(drawn, truth, levels=(0.1, 0.5, 0.9)):
    total = 0.0
    for level in levels:
        miss = truth - drawn.quantile(level, 1)
        total += torch.maximum(level * miss, (level - 1) * miss).sum()
    return float(2 * total / truth.sum() / len(levels))


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    diary, _ = begin()
    torch.set_num_threads(1)
    torch.manual_seed(40)
    shop, model = Shop(), DeepAR()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=10_000_000)
    for step, batch in enumerate(shop.training(), 1):
        optimizer.zero_grad()
        loss = model.loss(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            logger.info("step %d nll %.4f", step, loss.item())
        if step % 200 == 0:
            article, window, days = shop.latest()
            logger.info(
                "weighted quantile loss %.4f", pinball(model.futures(article, window, days), window[:, HISTORY:])
            )
        diary.stepped()


if __name__ == "__main__":
    main()
