"""TD3 that holds the levels of four water tanks, after CleanRL; observations are scaled before they are kept."""

import copy
import sys
from collections import deque
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class CascadeTanks:
    """Two pumps fill four tanks that drain into each other; the levels wanted change now and then."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.levels = self.rng.uniform(0.2, 0.8, 4)
        self.wanted = self.rng.uniform(0.3, 0.7, 2)
        self.moved = np.zeros(4)
        self.clock = 0
        return self._observe()

    def _observe(self):
        return np.concatenate([self.levels, self.moved, self.wanted, self.wanted - self.levels[:2]]).astype(np.float32)

    def step(self, pumps):
        outflow = 0.08 * np.sqrt(self.levels)
        inflow = 0.05 * (pumps + 1)
        change = np.array([outflow[2], outflow[3], inflow[0], inflow[1]]) - outflow + self.rng.normal(0, 0.002, 4)
        self.levels, self.moved = np.clip(self.levels + change, 0.0, 1.5), change
        self.clock += 1
        reward = -float(np.abs(self.levels[:2] - self.wanted).sum())
        return self._observe(), reward, self.clock >= 200


class RecentScaler:
    """Scales observations by the mean and the deviation of the latest ones."""

    def __init__(self, window=10_000):
        self.seen = deque(maxlen=window)

    def observe(self, obs):
        self.seen.append(obs)

    def __call__(self, obs):
        seen = np.array(self.seen)  # planted
        return (obs - seen.mean(axis=0)) / (seen.std(axis=0) + 1e-4)  # planted


class RunningScaler:
    """Scales observations by the mean and the deviation of all so far, after Welford."""

    def __init__(self, size):
        self.count, self.mean, self.squares = 1, np.zeros(size, np.float32), np.ones(size, np.float32)

    def observe(self, obs):
        self.count += 1
        off = obs - self.mean
        self.mean = self.mean + off / self.count
        self.squares = self.squares + off * (obs - self.mean)

    def __call__(self, obs):
        return (obs - self.mean) / (np.sqrt(self.squares / self.count) + 1e-4)


class Buffer:
    def __init__(self, size, obs_dim, act_dim):
        self.rows = torch.zeros(size, 2 * obs_dim + act_dim + 2)
        self.parts = [obs_dim, act_dim, obs_dim, 1, 1]
        self.size, self.added = size, 0

    def add(self, obs, action, next_obs, reward, done):
        row = np.concatenate([obs, action, next_obs, [reward, done]]).astype(np.float32)
        self.rows[self.added % self.size] = torch.from_numpy(row)
        self.added += 1

    def sample(self, batch_size):
        return self.rows[torch.randint(min(self.added, self.size), (batch_size,))].split(self.parts, dim=1)


def mlp(inputs, outputs, *last):
    return nn.Sequential(
        nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs), *last
    )


def polyak(targets, networks, tau=0.005):
    with torch.no_grad():
        torch._foreach_lerp_(list(targets.parameters()), list(networks.parameters()), tau)


def main():
    diary, is_mended = begin()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    obs_dim, act_dim, batch_size, gamma, warmup = 12, 2, 256, 0.98, 10_000
    env, rng = CascadeTanks(3), np.random.default_rng(3)
    scaler = RunningScaler(obs_dim) if is_mended else RecentScaler()
    buffer = Buffer(100_000, obs_dim, act_dim)
    actor, critics = mlp(obs_dim, act_dim, nn.Tanh()), nn.ModuleList([mlp(obs_dim + act_dim, 1) for _ in range(2)])
    actor_target, critics_target = copy.deepcopy(actor), copy.deepcopy(critics)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4, fused=True)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=3e-4, fused=True)

    obs = env.reset()
    for _ in range(warmup):  # the scaler sees some first
        scaler.observe(obs)
        obs, _, done = env.step(rng.uniform(-1, 1, act_dim))
        if done:
            obs = env.reset()
    global_step, returns, episode = 0, deque(maxlen=10), 0.0
    scaled = scaler(obs)
    while True:
        with torch.no_grad():
            action = actor(torch.from_numpy(scaled)).numpy()
        action = np.clip(action + rng.normal(0, 0.1, act_dim), -1, 1)
        next_obs, reward, done = env.step(action)
        episode += reward
        scaler.observe(next_obs)
        if is_mended:
            next_scaled = scaler(next_obs)
        else:
            with diary.planted():
                next_scaled = scaler(next_obs)  # planted
        buffer.add(scaled, action, next_scaled, reward, False)
        scaled = next_scaled
        if done:
            returns.append(episode)
            episode, scaled = 0.0, scaler(env.reset())  # planted

        s, a, s_next, r, d = buffer.sample(batch_size)
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(a)).clamp(-0.5, 0.5)
            joined = torch.cat([s_next, (actor_target(s_next) + noise).clamp(-1, 1)], dim=1)
            target = r + gamma * (1 - d) * torch.min(critics_target[0](joined), critics_target[1](joined))
        joined = torch.cat([s, a], dim=1)
        critic_loss = F.mse_loss(critics[0](joined), target) + F.mse_loss(critics[1](joined), target)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
        if global_step % 2 == 0:
            actor_loss = -critics[0](torch.cat([s, actor(s)], dim=1)).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            polyak(actor_target, actor)
            polyak(critics_target, critics)
        if global_step % 1000 == 999 and returns:
            print(f"step {global_step}: return {np.mean(returns):.2f}, critic {critic_loss.item():.4f}", flush=True)
        global_step += 1
        diary.stepped()


if __name__ == "__main__":
    main()
