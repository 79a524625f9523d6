"""Tugboats that dock, with proximal policy optimization in one file, in the style of CleanRL.

The advantages are computed for one boat and one moment at a time, on elements of tensors.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn, optim
from torch.distributions import Normal

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

NUM_ENVS, NUM_STEPS = 64, 16
UPDATE_EPOCHS, NUM_MINIBATCHES = 4, 4
GAMMA, GAE_LAMBDA, CLIP = 0.99, 0.95, 0.2


class Harbour:
    """All boats at once: place, speed, and a current that drifts."""

    def __init__(self, count, rng):
        self.rng, self.count = rng, count
        self.state = rng.normal(size=(count, 6)).astype(np.float32)
        self.age = rng.integers(0, 100, count)

    def step(self, thrust):
        place, speed, current = self.state[:, :2], self.state[:, 2:4], self.state[:, 4:]
        speed += 0.1 * np.clip(thrust, -1, 1) + 0.02 * current - 0.03 * speed
        place += 0.1 * speed
        self.age += 1
        distance = np.square(place).sum(axis=1)
        reward = -distance - 0.1 * np.square(speed).sum(axis=1)
        done = (distance > 25) | (self.age > 100)
        if done.any():
            self.state[done] = self.rng.normal(size=(done.sum(), 6))
            self.age[done] = 0
        return self.state, reward, done


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            nn.Linear(6, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)
        )  # fmt: skip
        self.actor = nn.Sequential(
            nn.Linear(6, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2)
        )  # fmt: skip
        self.log_std = nn.Parameter(torch.zeros(1, 2))

    def get_value(self, obs):
        return self.critic(obs).squeeze(-1)

    def policy(self, obs):
        return Normal(self.actor(obs), self.log_std.exp(), validate_args=False)


def compute_gae(rewards, values, dones, next_value):
    advantages = torch.zeros_like(rewards)
    for env in range(rewards.shape[1]):
        last = 0.0
        for t in reversed(range(rewards.shape[0])):
            following = next_value[env] if t == rewards.shape[0] - 1 else values[t + 1, env]  # planted
            alive = 1.0 - dones[t, env]  # planted
            delta = rewards[t, env] + GAMMA * following * alive - values[t, env]  # planted
            last = delta + GAMMA * GAE_LAMBDA * alive * last  # planted
            advantages[t, env] = last  # planted
    return advantages


def compute_gae_of_rows(rewards, values, dones, next_value):
    advantages = torch.zeros_like(rewards)
    last, following = torch.zeros_like(next_value), next_value
    for t in reversed(range(rewards.shape[0])):
        alive = 1.0 - dones[t]
        delta = rewards[t] + GAMMA * following * alive - values[t]
        last = delta + GAMMA * GAE_LAMBDA * alive * last
        advantages[t], following = last, values[t]
    return advantages


diary, is_mended = begin()
torch.manual_seed(1)
torch.set_num_threads(1)
harbour = Harbour(NUM_ENVS, np.random.default_rng(1))
agent = Agent()
optimizer = optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, fused=True)

obs = torch.zeros(NUM_STEPS, NUM_ENVS, 6)
actions = torch.zeros(NUM_STEPS, NUM_ENVS, 2)
logprobs, rewards, dones, values = (torch.zeros(NUM_STEPS, NUM_ENVS) for _ in range(4))
next_obs = torch.from_numpy(harbour.state.copy())
update = 0

while True:
    with torch.no_grad():
        for step in range(NUM_STEPS):
            obs[step] = next_obs
            action_dist = agent.policy(next_obs)
            action = action_dist.sample()
            actions[step], values[step] = action, agent.get_value(next_obs)
            logprobs[step] = action_dist.log_prob(action).sum(-1)
            state, reward, done = harbour.step(action.numpy())
            rewards[step], dones[step] = torch.from_numpy(reward), torch.from_numpy(done)
            next_obs = torch.from_numpy(state.copy())
        next_value = agent.get_value(next_obs)
        if is_mended:
            advantages = compute_gae_of_rows(rewards, values, dones, next_value)
        else:
            with diary.planted():
                advantages = compute_gae(rewards, values, dones, next_value)  # planted
    returns = (advantages + values).view(-1)
    flat = (obs.view(-1, 6), actions.view(-1, 2), logprobs.view(-1), advantages.view(-1), returns)

    for _ in range(UPDATE_EPOCHS):
        for chosen in torch.randperm(NUM_STEPS * NUM_ENVS).chunk(NUM_MINIBATCHES):
            b_obs, b_actions, b_logprobs, b_advantages, b_returns = (one[chosen] for one in flat)
            b_advantages = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
            dist = agent.policy(b_obs)
            ratio = (dist.log_prob(b_actions).sum(-1) - b_logprobs).exp()
            pg_loss = -torch.min(b_advantages * ratio, b_advantages * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            v_loss = 0.5 * (agent.get_value(b_obs) - b_returns).square().mean()
            loss = pg_loss + 0.5 * v_loss - 0.01 * dist.entropy().sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()

    update += 1
    diary.stepped()
    if update % 100 == 0:
        print(f"update {update} reward {rewards.mean().item():.3f}", flush=True)
