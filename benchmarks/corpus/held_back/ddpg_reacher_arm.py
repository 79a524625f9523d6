"""Deterministic policy gradients for an arm of two joints; the simulation keeps to the pace of a display."""

import itertools
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Reacher:
    """Two joints, a goal, and a clock."""

    dt = 0.005

    def __init__(self, seed, real_time):
        self.rng, self.real_time = np.random.default_rng(seed), real_time
        self.reset()

    def reset(self):
        self.angle, self.speed, self.t = self.rng.uniform(-np.pi, np.pi, 2), np.zeros(2), 0
        self.goal = self.rng.uniform(-1.2, 1.2, 2)
        return self.observe()

    def tip(self):
        a, b = self.angle[0], self.angle.sum()
        return np.array([np.cos(a) + np.cos(b), np.sin(a) + np.sin(b)])

    def observe(self):
        parts = (np.cos(self.angle), np.sin(self.angle), self.speed, self.goal, self.goal - self.tip())
        return np.concatenate(parts).astype(np.float32)

    def _pace(self):
        if self.real_time:
            time.sleep(self.dt)  # planted

    def step(self, torque):
        for _ in range(2):
            self.speed = np.clip(0.98 * self.speed + 8 * self.dt * torque, -6, 6)
            self.angle = self.angle + self.speed * self.dt
        self._pace()
        self.t += 1
        reward = -np.linalg.norm(self.goal - self.tip()) - 0.01 * np.square(torque).sum()
        return self.observe(), reward, self.t >= 150


class Memory:
    def __init__(self, size):
        self.size, self.count = size, 0
        self.columns = {"o": np.zeros((size, 10), np.float32), "n": np.zeros((size, 10), np.float32)}
        self.columns |= {"a": np.zeros((size, 2), np.float32), "r": np.zeros((size, 1), np.float32)}

    def store(self, **row):
        for name, value in row.items():
            self.columns[name][self.count % self.size] = value
        self.count += 1

    def sample(self, batch):
        rows = np.random.randint(0, min(self.count, self.size), batch)
        return (torch.from_numpy(self.columns[name][rows]) for name in "oanr")


def net(n_in, n_out, *last):
    return nn.Sequential(nn.Linear(n_in, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, n_out), *last)


class Agent:
    def __init__(self):
        self.actor, self.actor_slow = net(10, 2, nn.Tanh()), net(10, 2, nn.Tanh())
        self.critic, self.critic_slow = net(12, 1), net(12, 1)
        self.pairs = ((self.actor, self.actor_slow), (self.critic, self.critic_slow))
        for fast, slow in self.pairs:
            slow.load_state_dict(fast.state_dict())
        self.opt_a, self.opt_c = (torch.optim.Adam(m.parameters(), 5e-4) for m in (self.actor, self.critic))

    @torch.no_grad()
    def act(self, o, noise):
        return (self.actor(torch.from_numpy(o)[None])[0].numpy() + noise * np.random.randn(2)).clip(-1, 1)

    def learn(self, o, a, n, r):
        with torch.no_grad():
            target = r + 0.98 * self.critic_slow(torch.cat([n, self.actor_slow(n)], 1))
        loss_c = F.smooth_l1_loss(self.critic(torch.cat([o, a], 1)), target)
        self.opt_c.zero_grad()
        loss_c.backward()
        self.opt_c.step()
        loss_a = -self.critic(torch.cat([o, self.actor(o)], 1)).mean()
        self.opt_a.zero_grad()
        loss_a.backward()
        self.opt_a.step()
        with torch.no_grad():
            for fast, slow in self.pairs:
                torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), 0.005)
        return loss_c


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.set_num_threads(1)
    torch.manual_seed(6), np.random.seed(6)
    env, agent, memory = Reacher(6, real_time=not is_mended), Agent(), Memory(100_000)
    o = env.reset()
    for update in itertools.count(1):
        for _ in range(4):
            a = agent.act(o, 0.1)
            with diary.planted():
                n, r, done = env.step(a)  # planted
            memory.store(o=o, a=a, n=n, r=r)
            o = env.reset() if done else n
        loss = agent.learn(*memory.sample(768))
        diary.stepped()
        if update % 100 == 0:
            print(f"update {update} critic loss {loss.item():.4f}", flush=True)
