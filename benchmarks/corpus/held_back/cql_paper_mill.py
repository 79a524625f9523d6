"""A paper mill run from old logs by conservative Q-learning, in the style of one-file offline RL (CORL).

Nothing is planted.
"""

import copy
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class TrainConfig:
    state_dim: int = 22
    action_dim: int = 4
    hidden: int = 192
    logged: int = 60_000
    batch_size: int = 128
    n_actions: int = 6
    discount: float = 0.99
    tau: float = 0.005
    cql_alpha: float = 5.0
    entropy_alpha: float = 0.1


class ReplayBuffer:
    """What the mill logged, as tensors."""

    def __init__(self, config):
        drift = torch.randn(config.state_dim, config.state_dim) / config.state_dim**0.5
        push = torch.randn(config.action_dim, config.state_dim) * 0.3
        self.states = torch.randn(config.logged, config.state_dim)
        self.actions = torch.tanh(
            self.states[:, : config.action_dim] + 0.5 * torch.randn(config.logged, config.action_dim)
        )
        noise = 0.1 * torch.randn(config.logged, config.state_dim)
        self.next_states = torch.tanh(self.states @ drift + self.actions @ push) + noise
        self.rewards = 1 - self.next_states[:, :3].square().sum(1) - 0.1 * self.actions.square().sum(1)
        self.dones = (torch.rand(config.logged) < 0.01).float()

    def sample(self, count):
        chosen = torch.randint(len(self.rewards), (count,))
        return tuple(one[chosen] for one in (self.states, self.actions, self.rewards, self.next_states, self.dones))


def mlp(inputs, hidden, outputs):
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


class TanhPolicy(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.net = mlp(config.state_dim, config.hidden, 2 * config.action_dim)

    def forward(self, states, repeats=1):
        mean, log_std = self.net(states).chunk(2, dim=-1)
        normal = Normal(mean, log_std.clamp(-5, 2).exp(), validate_args=False)
        raw = normal.rsample((repeats,))
        correction = 2 * (0.6931 - raw - F.softplus(-2 * raw))
        return torch.tanh(raw), (normal.log_prob(raw) - correction).sum(-1)


class Critics(nn.Module):
    def __init__(self, config):
        super().__init__()
        inputs = config.state_dim + config.action_dim
        self.q1, self.q2 = mlp(inputs, config.hidden, 1), mlp(inputs, config.hidden, 1)

    def forward(self, states, actions):
        both = torch.cat([states.expand(*actions.shape[:-1], -1), actions], dim=-1)
        return self.q1(both).squeeze(-1), self.q2(both).squeeze(-1)


class ContinuousCQL:
    def __init__(self, config):
        self.config = config
        self.actor, self.critics = TanhPolicy(config), Critics(config)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-5, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=3e-4, fused=True)

    def q_loss(self, states, actions, rewards, next_states, dones):
        config = self.config
        with torch.no_grad():
            next_actions, _ = self.actor(next_states)
            following = torch.minimum(*self.target(next_states, next_actions))[0]
            wanted = rewards + config.discount * (1 - dones) * following
            own, own_log = self.actor(states, config.n_actions)
            anywhere = torch.empty_like(own).uniform_(-1, 1)
            tried = torch.cat([own, anywhere])
            anywhere_log = torch.full_like(own_log, -config.action_dim * 0.6931)
            log_density = torch.cat([own_log, anywhere_log])
        loss = 0.0
        for q_logged, q_tried in zip(
            self.critics(states, actions), self.critics(states, tried), strict=True
        ):  # fmt: skip
            gap = torch.logsumexp(q_tried - log_density, dim=0) - q_logged
            loss = loss + F.mse_loss(q_logged, wanted) + config.cql_alpha * gap.mean()
        return loss

    def policy_loss(self, states):
        actions, log_pi = self.actor(states)
        return (self.config.entropy_alpha * log_pi - torch.minimum(*self.critics(states, actions))).mean()

    def train(self, batch):
        policy_loss = self.policy_loss(batch[0])
        self.actor_optimizer.zero_grad()
        policy_loss.backward()
        self.actor_optimizer.step()

        q_loss = self.q_loss(*batch)
        self.critic_optimizer.zero_grad()
        q_loss.backward()
        self.critic_optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.critics.parameters()), self.config.tau)
        return {"q_loss": q_loss.detach(), "policy_loss": policy_loss.detach()}


def main():
    diary, _ = begin()
    config = TrainConfig()
    torch.manual_seed(10)
    torch.set_num_threads(1)
    buffer, trainer = ReplayBuffer(config), ContinuousCQL(config)
    iterations = 0
    while True:
        log = trainer.train(buffer.sample(config.batch_size))
        iterations += 1
        diary.stepped()
        if iterations % 500 == 0:
            print(iterations, {name: round(value.item(), 3) for name, value in log.items()}, flush=True)


if __name__ == "__main__":
    main()
