"""PPO for the climate of greenhouses: heating and vents, sixteen houses at once, observations brought to unit variance.

The statistics for that come from a window of the last observations, which is stacked again at each step of the rollout.
"""

import itertools
import sys
from collections import deque
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

HOUSES, STEPS, SENSORS, CONTROLS = 16, 48, 10, 2


class Greenhouses:
    """Temperature and humidity of many houses, pushed about by weather."""

    def __init__(self, seed=9):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.normal(18, 3, (HOUSES, 2))
        self.weather = self.rng.normal(10, 5, (HOUSES, SENSORS - 2))
        self.clock = self.rng.integers(0, 288, HOUSES)

    def observe(self):
        return np.concatenate([self.state, self.weather], 1).astype(np.float32)

    def step(self, controls):
        heat, vent = np.clip(controls, -1, 1).T
        self.weather += 0.05 * (10 - self.weather) + self.rng.normal(0, 0.5, self.weather.shape)
        pull = 0.02 + 0.05 * (vent + 1)
        self.state[:, 0] += 0.6 * heat + pull * (self.weather[:, 0] - self.state[:, 0])
        self.state[:, 1] += pull * (self.weather[:, 1] - self.state[:, 1]) + 0.1
        reward = -np.abs(self.state[:, 0] - 21) / 10 - np.abs(self.state[:, 1] - 14) / 20 - 0.02 * (heat + 1)
        self.clock += 1
        done = self.clock % 288 == 0
        if done.any():
            self.state[done] = self.rng.normal(18, 3, (int(done.sum()), 2))
        return self.observe(), reward.astype(np.float32), done.astype(np.float32)


class WindowNormalizer:
    def __init__(self, window=600):
        self.seen = deque(maxlen=window)

    def __call__(self, observations):
        self.seen.append(observations)
        history = np.array(self.seen)  # planted
        mean, deviation = history.mean(axis=(0, 1)), history.std(axis=(0, 1))  # planted
        return np.clip((observations - mean) / (deviation + 1e-6), -10, 10).astype(np.float32)


class RunningNormalizer:
    """The parallel algorithm of Chan et al."""

    def __init__(self):
        self.mean, self.variance, self.count = np.zeros(SENSORS), np.ones(SENSORS), 1e-4

    def __call__(self, observations):
        mean, variance, count = observations.mean(0), observations.var(0), len(observations)
        delta, total = mean - self.mean, self.count + count
        moment = self.variance * self.count + variance * count + delta**2 * self.count * count / total
        self.mean, self.variance, self.count = self.mean + delta * count / total, moment / total, total
        return np.clip((observations - self.mean) / np.sqrt(self.variance + 1e-8), -10, 10).astype(np.float32)


class Agent(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.critic = nn.Sequential(
            nn.Linear(SENSORS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.actor = nn.Sequential(
            nn.Linear(SENSORS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, CONTROLS)
        )
        self.log_deviation = nn.Parameter(torch.zeros(CONTROLS))

    def policy(self, observations):
        return Normal(self.actor(observations), self.log_deviation.exp(), validate_args=False)


@torch.no_grad()
def advantages(rewards, values, dones, last, gamma=0.99, lam=0.95):
    found, carried = torch.zeros_like(rewards), torch.zeros(HOUSES)
    for t in reversed(range(STEPS)):
        following = last if t == STEPS - 1 else values[t + 1]
        delta = rewards[t] + gamma * following * (1 - dones[t]) - values[t]
        carried = delta + gamma * lam * (1 - dones[t]) * carried
        found[t] = carried
    return found


def main(diary, is_mended):
    torch.manual_seed(9)
    torch.set_num_threads(1)
    houses, agent = Greenhouses(), Agent()
    normalize = RunningNormalizer() if is_mended else WindowNormalizer()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, fused=True)
    raw = houses.observe()
    seen, acted = torch.zeros(STEPS, HOUSES, SENSORS), torch.zeros(STEPS, HOUSES, CONTROLS)
    logs, rewards, dones, values = (torch.zeros(STEPS, HOUSES) for _ in range(4))
    for iteration in itertools.count(1):
        for t in range(STEPS):
            if is_mended:
                observations = torch.from_numpy(normalize(raw))
            else:
                with diary.planted():
                    observations = torch.from_numpy(normalize(raw))  # planted
            with torch.no_grad():
                policy = agent.policy(observations)
                action = policy.sample()
                logs[t] = policy.log_prob(action).sum(1)
                values[t] = agent.critic(observations).squeeze(1)
            raw, reward, done = houses.step(action.numpy())
            seen[t], acted[t], rewards[t], dones[t] = (
                observations,
                action,
                torch.from_numpy(reward),
                torch.from_numpy(done),
            )
        with torch.no_grad():
            last = agent.critic(observations).squeeze(1)
        gains = advantages(rewards, values, dones, last).flatten()
        returns = gains + values.flatten()
        flat_seen, flat_acted, flat_logs = seen.flatten(0, 1), acted.flatten(0, 1), logs.flatten()
        for _ in range(3):
            for rows in torch.randperm(STEPS * HOUSES).split(256):
                policy = agent.policy(flat_seen[rows])
                ratio = (policy.log_prob(flat_acted[rows]).sum(1) - flat_logs[rows]).exp()
                gain = (gains[rows] - gains[rows].mean()) / (gains[rows].std() + 1e-8)
                policy_loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
                value_loss = 0.5 * (agent.critic(flat_seen[rows]).squeeze(1) - returns[rows]).pow(2).mean()
                loss = policy_loss + 0.5 * value_loss - 0.001 * policy.entropy().sum(1).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        diary.stepped()
        if iteration % 50 == 0:
            print(f"iteration {iteration} reward {rewards.mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main(*begin())
