"""Advantage actor-critic on many pendulums at once, which a few array operations move.

Nothing is planted: the simulation is part of the work, as short as numpy makes it, and batches are large.
"""

import sys
from collections import deque
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ENVS, HORIZON, GAMMA, LAMBDA, ENTROPY = 64, 16, 0.97, 0.95, 1e-3


class VectorPendulum:
    """Pendulums with a torque at the joint; an episode lasts 200 steps."""

    def __init__(self, count, seed):
        self.random = np.random.default_rng(seed)
        self.count = count
        self.angle, self.speed = np.zeros(count), np.zeros(count)
        self.age = self.random.integers(0, 200, count)
        self.restart(np.ones(count, dtype=bool))

    def restart(self, which):
        amount = int(which.sum())
        self.angle[which] = self.random.uniform(-np.pi, np.pi, amount)
        self.speed[which] = self.random.uniform(-1, 1, amount)
        self.age[which] = 0

    def observe(self):
        return np.stack([np.cos(self.angle), np.sin(self.angle), self.speed], axis=1).astype(np.float32)

    def step(self, torque):
        torque = np.clip(torque, -2.0, 2.0)
        wrapped = (self.angle + np.pi) % (2 * np.pi) - np.pi
        cost = wrapped**2 + 0.1 * self.speed**2 + 0.001 * torque**2
        self.speed = np.clip(self.speed + (15 * np.sin(self.angle) + 3 * torque) * 0.05, -8, 8)
        self.angle = self.angle + self.speed * 0.05
        self.age += 1
        done = self.age >= 200
        self.restart(done)
        return self.observe(), (-cost).astype(np.float32), done


class ActorCritic(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.mean, self.value = nn.Linear(width, 1), nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, observation):
        hidden = self.body(observation)
        return Normal(2 * torch.tanh(self.mean(hidden)), self.log_std.exp()), self.value(hidden).squeeze(-1)


@torch.no_grad()
def collect(env, policy, observation):
    observations = torch.zeros(HORIZON + 1, ENVS, 3)
    actions = torch.zeros(HORIZON, ENVS, 1)
    rewards, dones = torch.zeros(HORIZON, ENVS), torch.zeros(HORIZON, ENVS)
    for t in range(HORIZON):
        observations[t] = torch.from_numpy(observation)
        actions[t] = policy(observations[t])[0].sample()
        observation, reward, done = env.step(actions[t, :, 0].numpy())
        rewards[t], dones[t] = torch.from_numpy(reward), torch.from_numpy(done)
    observations[HORIZON] = torch.from_numpy(observation)
    return observations, actions, rewards / 10, dones, observation


def advantages(values, rewards, dones):
    result, running = torch.zeros_like(rewards), torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        alive = 1 - dones[t]
        delta = rewards[t] + GAMMA * values[t + 1] * alive - values[t]
        running = delta + GAMMA * LAMBDA * alive * running
        result[t] = running
    return result


def update(policy, optimizer, observations, actions, rewards, dones):
    distribution, values = policy(observations)
    gained = advantages(values.detach(), rewards, dones)
    log_prob = Normal(distribution.mean[:-1], distribution.stddev[:-1]).log_prob(actions).squeeze(-1)
    actor = -(log_prob * (gained - gained.mean()) / (gained.std() + 1e-6)).mean()
    critic = (gained + values[:-1].detach() - values[:-1]).square().mean()
    loss = actor + 0.5 * critic - ENTROPY * distribution.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()


def main():
    diary, _ = begin()
    torch.manual_seed(13)
    torch.set_num_threads(1)
    env, policy = VectorPendulum(ENVS, seed=13), ActorCritic()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=7e-4, alpha=0.99)
    observation, returns, updates = env.observe(), deque(maxlen=100), 0
    while True:
        *rollout, observation = collect(env, policy, observation)
        update(policy, optimizer, *rollout)
        updates += 1
        diary.stepped()
        returns.append(rollout[2].mean())
        if updates % 250 == 0:
            print(f"update {updates}: mean reward {torch.stack(list(returns)).mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
