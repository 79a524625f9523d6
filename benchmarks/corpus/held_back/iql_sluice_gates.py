"""Implicit Q-learning from the records of sluice gates, after CORL's single files. Nothing is planted."""

import copy
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class TrainConfig:
    batch_size: int = 256
    discount: float = 0.98
    tau: float = 0.005
    iql_tau: float = 0.7
    beta: float = 3.0
    max_weight: float = 100.0
    hidden: int = 256
    lr: float = 3e-4
    log_every: int = 500


class Records:
    """Transitions of a canal: the levels behind three gates, kept by a clumsy hand."""

    def __init__(self, days, length=192):
        levels, wanted = torch.rand(days, 3), torch.rand(days, 3) * 0.4 + 0.3
        rows = []
        for _ in range(length):
            states = torch.cat([levels, wanted, wanted - levels], dim=1)
            actions = (2 * (wanted - levels) + 0.4 * torch.randn(days, 3)).clamp(-1, 1)
            passed = 0.1 * (actions + 1) * levels
            levels = (levels + 0.12 - passed + 0.5 * passed.roll(1, dims=1) * torch.tensor([0.0, 1.0, 1.0])).clamp(0, 1)
            rewards = -(wanted - levels).abs().sum(1, keepdim=True)
            rows.append(torch.cat([states, actions, rewards, levels, wanted, wanted - levels], dim=1))
        self.rows = torch.cat(rows)
        states = self.rows[:, :9]
        mean, deviation = states.mean(0), states.std(0) + 1e-3
        self.rows[:, :9] = (states - mean) / deviation
        self.rows[:, 13:] = (self.rows[:, 13:] - mean) / deviation

    def sample(self, batch_size):
        chosen = torch.randint(len(self.rows), (batch_size,))
        return self.rows[chosen].split([9, 3, 1, 9], dim=1)


def mlp(inputs, hidden, outputs):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


class TwinQ(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.q1, self.q2 = mlp(12, hidden, 1), mlp(12, hidden, 1)

    def both(self, states, actions):
        joined = torch.cat([states, actions], dim=1)
        return self.q1(joined), self.q2(joined)

    def forward(self, states, actions):
        return torch.min(*self.both(states, actions))


class GaussianPolicy(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = mlp(9, hidden, 3)
        self.log_std = nn.Parameter(torch.zeros(3))

    def negative_log_prob(self, states, actions):
        log_std = self.log_std.clamp(-4, 1)
        off = (actions - self.net(states).tanh()) * (-log_std).exp()
        return (0.5 * off**2 + log_std).sum(1, keepdim=True)


def asymmetric_l2_loss(u, tau):
    return (torch.abs(tau - (u < 0).float()) * u**2).mean()


class ImplicitQLearning:
    def __init__(self, config):
        self.config = config
        self.qf, self.vf, self.actor = TwinQ(config.hidden), mlp(9, config.hidden, 1), GaussianPolicy(config.hidden)
        self.q_target = copy.deepcopy(self.qf).requires_grad_(False)
        self.q_optimizer = torch.optim.Adam(self.qf.parameters(), lr=config.lr, fused=True)
        self.v_optimizer = torch.optim.Adam(self.vf.parameters(), lr=config.lr, fused=True)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=config.lr, fused=True)
        self.q_weights, self.target_weights = list(self.qf.parameters()), list(self.q_target.parameters())

    @staticmethod
    def _descend(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def train(self, states, actions, rewards, next_states):
        with torch.no_grad():
            target_q = self.q_target(states, actions)
            next_v = self.vf(next_states)
        advantage = target_q - self.vf(states)
        v_loss = asymmetric_l2_loss(advantage, self.config.iql_tau)
        self._descend(self.v_optimizer, v_loss)

        targets = rewards + self.config.discount * next_v
        q1, q2 = self.qf.both(states, actions)
        q_loss = (F.mse_loss(q1, targets) + F.mse_loss(q2, targets)) / 2
        self._descend(self.q_optimizer, q_loss)
        with torch.no_grad():
            torch._foreach_lerp_(self.target_weights, self.q_weights, self.config.tau)

        weights = (self.config.beta * advantage.detach()).exp().clamp(max=self.config.max_weight)
        actor_loss = (weights * self.actor.negative_log_prob(states, actions)).mean()
        self._descend(self.actor_optimizer, actor_loss)
        return {"value": v_loss.detach(), "critic": q_loss.detach(), "actor": actor_loss.detach()}


def main():
    diary, _ = begin()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    config = TrainConfig()
    records, trainer = Records(days=1000), ImplicitQLearning(config)
    step = 0
    while True:
        losses = trainer.train(*records.sample(config.batch_size))
        step += 1
        if step % config.log_every == 0:
            print(
                f"step {step}: " + ", ".join(f"{name} {loss.item():.4f}" for name, loss in losses.items()), flush=True
            )
        diary.stepped()


if __name__ == "__main__":
    main()
