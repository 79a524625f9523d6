"""Proximal policy optimization on many carts with poles at once, after the usual single files.

Nothing is planted: the simulation and the estimate of advantages are a small part beside the epochs of updates.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

ENVS, HORIZON, EPOCHS, MINIBATCH = 64, 64, 4, 1024


class VectorCartPole:
    """All carts in one array of states, reset one by one as they fail."""

    def __init__(self, count, rng):
        self.rng, self.count = rng, count
        self.state = rng.uniform(-0.05, 0.05, (count, 4)).astype(np.float32)
        self.age = np.zeros(count, int)

    def step(self, actions):
        _, v, angle, spin = self.state.T
        force = np.where(actions == 1, 10.0, -10.0)
        cos, sin = np.cos(angle), np.sin(angle)
        pushed = (force + 0.05 * spin**2 * sin) / 1.1
        turned = (9.8 * sin - cos * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        moved = pushed - 0.05 * turned * cos / 1.1
        self.state += 0.02 * np.stack([v, moved, spin, turned], 1).astype(np.float32)
        self.age += 1
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21) | (self.age >= 500)
        self.state[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        self.age[done] = 0
        return self.state.copy(), np.ones(self.count, np.float32), done


def layer(n_in, n_out, gain=2**0.5):
    linear = nn.Linear(n_in, n_out)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.critic = nn.Sequential(layer(4, width), nn.Tanh(), layer(width, width), nn.Tanh(), layer(width, 1, 1.0))
        self.actor = nn.Sequential(layer(4, width), nn.Tanh(), layer(width, width), nn.Tanh(), layer(width, 2, 0.01))

    def value(self, x):
        return self.critic(x).squeeze(-1)


@torch.no_grad()
def rollout(agent, env, obs):
    rows = {name: torch.zeros(HORIZON, ENVS) for name in ("logprob", "reward", "done", "value")}
    seen, acted = torch.zeros(HORIZON, ENVS, 4), torch.zeros(HORIZON, ENVS, dtype=torch.long)
    for t in range(HORIZON):
        policy = Categorical(logits=agent.actor(obs))
        action = policy.sample()
        seen[t], acted[t], rows["logprob"][t], rows["value"][t] = obs, action, policy.log_prob(action), agent.value(obs)
        state, reward, done = env.step(action.numpy())
        rows["reward"][t], rows["done"][t] = torch.from_numpy(reward), torch.from_numpy(done)
        obs = torch.from_numpy(state)
    advantage, last, following = torch.zeros(HORIZON, ENVS), torch.zeros(ENVS), agent.value(obs)
    for t in reversed(range(HORIZON)):
        alive = 1 - rows["done"][t]
        delta = rows["reward"][t] + 0.99 * following * alive - rows["value"][t]
        advantage[t] = last = delta + 0.99 * 0.95 * alive * last
        following = rows["value"][t]
    columns = [seen, acted, rows["logprob"], advantage, advantage + rows["value"]]
    return obs, [column.flatten(0, 1) for column in columns], rows["done"].mean().item()


def ppo_loss(agent, obs, action, old_logprob, advantage, returns, clip=0.2):
    policy = Categorical(logits=agent.actor(obs))
    ratio = (policy.log_prob(action) - old_logprob).exp()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = -torch.min(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip)).mean()
    value_loss = 0.5 * (agent.value(obs) - returns).square().mean()
    return policy_loss + 0.5 * value_loss - 0.01 * policy.entropy().mean()


def main(diary, _):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    env, agent = VectorCartPole(ENVS, np.random.default_rng(1)), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    obs, iteration = torch.from_numpy(env.state.copy()), 0
    while True:
        obs, columns, failures = rollout(agent, env, obs)
        for _ in range(EPOCHS):
            for rows in torch.randperm(ENVS * HORIZON).split(MINIBATCH):
                loss = ppo_loss(agent, *(column[rows] for column in columns))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                diary.stepped()
        iteration += 1
        if iteration % 10 == 0:
            print(f"iteration {iteration} mean length {1 / max(failures, 1e-6):.0f}", flush=True)


if __name__ == "__main__":
    main(*begin())
