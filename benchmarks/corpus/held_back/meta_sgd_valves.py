"""Meta-SGD on the responses of valves, with learned rates and tasks side by side by vmap. Nothing is planted."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

TASKS, SHOTS, INNER = 24, 24, 3


def draw_tasks():
    """Draw valves of their own gain, delay and damping; return their inputs and responses."""
    gain = torch.rand(TASKS, 1, 1) * 2 + 0.5
    rate = torch.rand(TASKS, 1, 1) * 4 + 1
    delay = torch.rand(TASKS, 1, 1)
    damping = torch.rand(TASKS, 1, 1) * 0.8 + 0.2
    t = torch.rand(TASKS, 2 * SHOTS, 1) * 5
    since = (t - delay).clamp(min=0)
    response = gain * (1 - torch.exp(-damping * since) * torch.cos(rate * since))
    return t, response + 0.01 * torch.randn_like(response)


class Net(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, t):
        return self.layers(t - 2.5)


class MetaSGD(nn.Module):
    """The weights to start from and a rate for each."""

    def __init__(self, net, rate=0.02):
        super().__init__()
        self.net = net
        self.rates = nn.ParameterDict(
            {name.replace(".", "_"): torch.full_like(weight, rate) for name, weight in net.named_parameters()}
        )

    def loss(self, weights, t, response):
        return (functional_call(self.net, weights, (t,)) - response).square().mean()

    def adapted_loss(self, weights, rates, t, response):
        """Return the loss on the second half of a task after some steps on the first."""
        for _ in range(INNER):
            gradients = grad(self.loss)(weights, t[:SHOTS], response[:SHOTS])
            weights = {name: weight - rates[name] * gradients[name] for name, weight in weights.items()}
        return self.loss(weights, t[SHOTS:], response[SHOTS:])

    def forward(self, t, response):
        weights = dict(self.net.named_parameters())
        rates = {name: self.rates[name.replace(".", "_")] for name in weights}
        return vmap(self.adapted_loss, in_dims=(None, None, 0, 0))(weights, rates, t, response).mean()


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    meta = MetaSGD(Net())
    optimizer = torch.optim.Adam(meta.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100_000)
    average = torch.zeros(())
    for iteration in range(1, 1_000_000_000):
        loss = meta(*draw_tasks())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(meta.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        average.lerp_(loss.detach(), 0.02)
        diary.stepped()
        if iteration % 200 == 0:
            print(f"iteration {iteration} loss {average.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
