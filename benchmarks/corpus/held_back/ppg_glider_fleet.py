"""Phasic policy gradient on a fleet of gliders, all simulated in one tensor. Nothing is planted."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

FLEET, STEPS, OBS, ACTIONS = 256, 32, 8, 2


class Gliders:
    """Gliders that seek a thermal; a far one starts anew."""

    def __init__(self):
        self.state = torch.zeros(FLEET, OBS)
        self.restart(torch.ones(FLEET, dtype=torch.bool))

    def restart(self, which):
        fresh = torch.randn(FLEET, OBS) * 0.5
        self.state = torch.where(which.unsqueeze(1), fresh, self.state)

    def step(self, action):
        position, velocity, wind, thermal = self.state.split(2, dim=1)
        velocity = 0.95 * velocity + 0.1 * action.clamp(-1, 1) + 0.02 * wind
        position = position + 0.1 * velocity
        distance = (position - thermal).norm(dim=1)
        self.state = torch.cat([position, velocity, wind, thermal], 1)
        done = distance > 4
        self.restart(done)
        return torch.exp(-distance) - 0.01 * action.square().sum(1), done.float()


class Agent(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mean, self.side_value = nn.Linear(hidden, ACTIONS), nn.Linear(hidden, 1)
        self.log_std = nn.Parameter(torch.zeros(ACTIONS))
        self.critic = nn.Sequential(
            nn.Linear(OBS, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def policy(self, obs):
        h = self.body(obs)
        return Normal(self.mean(h), self.log_std.exp()), self.side_value(h).squeeze(-1)

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


@torch.no_grad()
def rollout(agent, env):
    rows = []
    for _ in range(STEPS):
        obs = env.state
        policy, _ = agent.policy(obs)
        action = policy.sample()
        reward, done = env.step(action)
        rows.append((obs, action, policy.log_prob(action).sum(-1), reward, done))
    obs, action, log_p, reward, done = (torch.stack(column) for column in zip(*rows, strict=True))
    value, last = agent.value(obs), agent.value(env.state)
    advantage, running = torch.zeros_like(reward), torch.zeros(FLEET)
    for t in reversed(range(STEPS)):
        after = last if t == STEPS - 1 else value[t + 1]
        delta = reward[t] + 0.99 * (1 - done[t]) * after - value[t]
        advantage[t] = running = delta + 0.99 * 0.95 * (1 - done[t]) * running
    flat = [x.flatten(0, 1) for x in (obs, action, log_p, advantage, advantage + value)]
    return flat, reward.mean()


def policy_loss(agent, obs, action, old_log_p, advantage, target):
    policy, _ = agent.policy(obs)
    ratio = (policy.log_prob(action).sum(-1) - old_log_p).exp()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    value_loss = 0.5 * (agent.value(obs) - target).square().mean()
    return value_loss - surrogate - 0.01 * policy.entropy().sum(-1).mean()


def side_loss(agent, obs, old_policy, target):
    policy, value = agent.policy(obs)
    drift = kl_divergence(old_policy, policy).sum(-1).mean()
    return 0.5 * (value - target).square().mean() + drift + 0.5 * (agent.value(obs) - target).square().mean()


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    env, agent = Gliders(), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4)

    def update(loss):
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        diary.stepped()

    for phase in range(1_000_000):
        data, reward = rollout(agent, env)
        for _ in range(3):
            for chosen in torch.randperm(FLEET * STEPS).split(1024):
                update(policy_loss(agent, *(x[chosen] for x in data)))
        if phase % 8 == 7:
            obs, target = data[0], data[4]
            with torch.no_grad():
                old, _ = agent.policy(obs)
            for _ in range(3):
                for chosen in torch.randperm(FLEET * STEPS).split(1024):
                    update(side_loss(agent, obs[chosen], Normal(old.loc[chosen], old.scale[chosen]), target[chosen]))
        if phase % 10 == 0:
            print(f"phase {phase} reward {reward.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
