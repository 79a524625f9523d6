"""An actor-critic on eight small trading environments, each of which runs in a process of its own.

Complaint: thu-ml/tianshou, issue 387, "SubprocVectorEnv/ShmemVectorEnv is much slower than DummyVectorEnv" (and openai/baselines 608): a trading
environment does little in a step, so the pipes between the processes take longer than the step itself. Fix: step them one after the other in the
training's process. Figure of baselines 608 for such environments: 5 times the steps a second.
"""

import multiprocessing
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Settings:
    envs: int = 8
    horizon: int = 32
    hidden: int = 64
    gamma: float = 0.99
    learning_rate: float = 3e-4


class TradingEnv:
    """Buy, sell or hold one asset whose price walks at random."""

    def __init__(self, seed, window=16, length=200):
        self.generator, self.window, self.length = np.random.default_rng(seed), window, length
        self.reset()

    def reset(self):
        self.prices = np.exp(np.cumsum(self.generator.normal(0, 0.01, self.length + self.window)))
        self.time, self.held = self.window, 0
        return self.observe()

    def observe(self):
        past = self.prices[self.time - self.window : self.time]
        return np.append(past / past[-1] - 1, self.held).astype(np.float32)

    def step(self, action):
        self.held = int(action) - 1
        before = self.prices[self.time - 1]
        reward = self.held * (self.prices[self.time] / before - 1)
        self.time += 1
        done = self.time >= self.length
        return (self.reset() if done else self.observe()), reward, done


def env_worker(remote, seed, parent):
    env = TradingEnv(seed)
    while os.getppid() == parent:
        if remote.poll(1):
            command, data = remote.recv()
            remote.send(env.reset() if command == "reset" else env.step(data))


class SubprocVectorEnv:
    def __init__(self, count, diary):
        self.remotes, self.diary = [], diary
        for seed in range(count):
            ours, theirs = multiprocessing.Pipe()
            multiprocessing.Process(target=env_worker, args=(theirs, seed, os.getpid()), daemon=True).start()
            self.remotes.append(ours)

    def reset(self):
        for remote in self.remotes:
            remote.send(("reset", None))
        return np.stack([remote.recv() for remote in self.remotes])

    def step(self, actions):
        with self.diary.planted():
            for remote, action in zip(self.remotes, actions, strict=True):
                remote.send(("step", action))  # planted
            results = [remote.recv() for remote in self.remotes]  # planted
        return tuple(np.stack(values) for values in zip(*results, strict=True))


class DummyVectorEnv:
    def __init__(self, count, _):
        self.envs = [TradingEnv(seed) for seed in range(count)]

    def reset(self):
        return np.stack([env.reset() for env in self.envs])

    def step(self, actions):
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        return tuple(np.stack(values) for values in zip(*results, strict=True))


class ActorCritic(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.policy, self.value = nn.Linear(hidden, 3), nn.Linear(hidden, 1)

    def forward(self, observations):
        hidden = self.body(observations)
        return torch.distributions.Categorical(logits=self.policy(hidden)), self.value(hidden)[..., 0]


class Collector:
    def __init__(self, envs, model, settings):
        self.envs, self.model, self.settings = envs, model, settings
        self.last = envs.reset()

    def collect(self):
        kept = []
        for _ in range(self.settings.horizon):
            observed = torch.from_numpy(self.last)
            with torch.no_grad():
                actions = self.model(observed)[0].sample()
            self.last, rewards, done = self.envs.step(actions.numpy())  # planted
            kept.append((observed, actions, torch.from_numpy(rewards).float(), torch.from_numpy(~done)))
        return tuple(map(torch.stack, zip(*kept, strict=True)))


def returns_of(rewards, going, last_value, gamma):
    wanted, following = torch.zeros_like(rewards), last_value
    for time in reversed(range(len(rewards))):
        following = rewards[time] + gamma * following * going[time]
        wanted[time] = following
    return wanted


def main():
    diary, is_mended = begin()
    settings = Settings()
    envs = (DummyVectorEnv if is_mended else SubprocVectorEnv)(settings.envs, diary)
    model = ActorCritic(17, settings.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    collector = Collector(envs, model, settings)
    while True:
        observed, actions, rewards, going = collector.collect()  # planted
        with torch.no_grad():
            last_value = model(torch.from_numpy(collector.last))[1]
        wanted = returns_of(rewards, going, last_value, settings.gamma)
        for _ in range(4):
            policy, values = model(observed)
            advantages = (wanted - values).detach()
            loss = (values - wanted).square().mean() - (policy.log_prob(actions) * advantages).mean()
            loss = loss - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(9)
    torch.set_num_threads(1)
    main()
