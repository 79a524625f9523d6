"""TD3 with `learn` and callbacks as Stable-Baselines3 has them, over pendulums that a vector of environments steps.

Nothing is planted: the evaluation is seldom and short, and the environments are arrays.
"""

import copy
import sys
from collections import deque
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class VecPendulum:
    """Pendulums that should stand: observations (n, 3), actions (n, 1) within 1."""

    def __init__(self, num_envs, seed, limit=200):
        self.num_envs, self.limit, self.rng = num_envs, limit, np.random.default_rng(seed)

    def _observe(self):
        return np.stack([np.cos(self.angle), np.sin(self.angle), self.speed / 8], 1).astype(np.float32)

    def reset(self):
        self.angle, self.speed = self.rng.uniform(-np.pi, np.pi, self.num_envs), self.rng.uniform(-1, 1, self.num_envs)
        self.t, self.episode = np.zeros(self.num_envs, dtype=int), np.zeros(self.num_envs)
        return self._observe()

    def step(self, actions):
        torque = 2.0 * actions[:, 0]
        upright = (self.angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(upright**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed = np.clip(self.speed + 0.05 * (15 * np.sin(self.angle) + 3 * torque), -8, 8)
        self.angle = self.angle + 0.05 * self.speed
        self.t += 1
        self.episode += reward
        ended, infos = self.t >= self.limit, []
        if ended.any():
            infos = [{"r": float(total), "l": self.limit} for total in self.episode[ended]]
            count = int(ended.sum())
            self.angle[ended], self.speed[ended] = (
                self.rng.uniform(-np.pi, np.pi, count),
                self.rng.uniform(-1, 1, count),
            )
            self.t[ended], self.episode[ended] = 0, 0.0
        return self._observe(), reward.astype(np.float32), ended, infos


class ReplayBuffer:
    def __init__(self, size, rng):
        self.size, self.rng, self.at, self.full = size, rng, 0, False
        self.obs, self.next_obs = np.zeros((size, 3), np.float32), np.zeros((size, 3), np.float32)
        self.actions, self.rewards = np.zeros((size, 1), np.float32), np.zeros((size, 1), np.float32)

    def add(self, obs, next_obs, actions, rewards):
        rows = (self.at + np.arange(len(obs))) % self.size
        self.obs[rows], self.next_obs[rows], self.actions[rows] = obs, next_obs, actions
        self.rewards[rows] = rewards[:, None]
        self.full |= self.at + len(obs) >= self.size
        self.at = (self.at + len(obs)) % self.size

    def sample(self, batch_size):
        rows = self.rng.integers(self.size if self.full else self.at, size=batch_size)
        return (torch.from_numpy(part[rows]) for part in (self.obs, self.actions, self.rewards, self.next_obs))


class BaseCallback:
    def init(self, model):
        self.model, self.n_calls = model, 0

    def on_step(self):
        self.n_calls += 1
        return self._on_step()

    def _on_step(self):
        return True


class EvalCallback(BaseCallback):
    """A few whole episodes of the policy without its noise, each ``eval_freq`` steps."""

    def __init__(self, env, eval_freq=3000):
        self.env, self.eval_freq, self.best = env, eval_freq, -np.inf

    def _on_step(self):
        if self.n_calls % self.eval_freq:
            return True
        obs, episodes = self.env.reset(), []
        while len(episodes) < self.env.num_envs:
            obs, _, _, infos = self.env.step(self.model.predict(obs))
            episodes += [info["r"] for info in infos]
        mean = float(np.mean(episodes))
        if mean > self.best:
            self.best, self.model.best_actor = mean, copy.deepcopy(self.model.actor)
        print(f"Eval num_timesteps={self.model.num_timesteps}, episode_reward={mean:.1f}", flush=True)
        return True


class DiaryCallback(BaseCallback):
    def __init__(self, diary):
        self.diary = diary

    def _on_step(self):
        self.diary.stepped()
        return True


def create_mlp(before, after, net_arch=(400, 300)):
    layers = []
    for width in net_arch:
        layers += [nn.Linear(before, width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.Linear(before, after))


class TD3:
    def __init__(self, env, learning_rate=1e-3, batch_size=128, gamma=0.98, tau=0.005, policy_delay=2, seed=0):
        self.env, self.rng = env, np.random.default_rng(seed)
        self.batch_size, self.gamma, self.tau, self.policy_delay = batch_size, gamma, tau, policy_delay
        self.actor = nn.Sequential(create_mlp(3, 1), nn.Tanh())
        self.critic = nn.ModuleList([create_mlp(4, 1), create_mlp(4, 1)])
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=learning_rate)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=learning_rate)
        self.replay_buffer = ReplayBuffer(100_000, self.rng)
        self.num_timesteps, self._n_updates, self.ep_info_buffer = 0, 0, deque(maxlen=100)

    @torch.no_grad()
    def predict(self, obs):
        return self.actor(torch.from_numpy(obs)).numpy()

    def train(self):
        obs, actions, rewards, next_obs = self.replay_buffer.sample(self.batch_size)
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(actions)).clamp(-0.5, 0.5)
            after = torch.cat([next_obs, (self.actor_target(next_obs) + noise).clamp(-1, 1)], 1)
            target = rewards + self.gamma * torch.min(*(critic(after) for critic in self.critic_target))
        now = torch.cat([obs, actions], 1)
        critic_loss = sum(F.mse_loss(critic(now), target) for critic in self.critic)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        self._n_updates += 1
        if self._n_updates % self.policy_delay == 0:
            actor_loss = -self.critic[0](torch.cat([obs, self.actor(obs)], 1)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            self._polyak(self.actor_target, self.actor)
            self._polyak(self.critic_target, self.critic)

    @torch.no_grad()
    def _polyak(self, target, source):
        torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), self.tau)

    def learn(self, total_timesteps, callbacks, learning_starts=400):
        for callback in callbacks:
            callback.init(self)
        obs, is_on = self.env.reset(), True
        while is_on and self.num_timesteps < total_timesteps:
            actions = self.predict(obs) + 0.1 * self.rng.standard_normal((self.env.num_envs, 1))
            actions = np.clip(actions, -1, 1).astype(np.float32)
            next_obs, rewards, _, infos = self.env.step(actions)
            self.replay_buffer.add(obs, next_obs, actions, rewards)
            self.ep_info_buffer.extend(infos)
            obs = next_obs
            self.num_timesteps += self.env.num_envs
            if self.num_timesteps > learning_starts:
                self.train()
            is_on = all(callback.on_step() for callback in callbacks)
        return self


def main(diary, _):
    model = TD3(VecPendulum(4, seed=1))
    model.learn(10**12, [EvalCallback(VecPendulum(3, seed=2)), DiaryCallback(diary)])


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
