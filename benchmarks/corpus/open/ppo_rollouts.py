"""PPO on a small control task, after CleanRL's single file; episodes are written as JSON while they are played."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class CartPole:
    """Several cart poles at once; those that fall begin anew."""

    def __init__(self, num_envs, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.uniform(-0.05, 0.05, (num_envs, 4))

    def step(self, action):
        x, v, angle, spin = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        temp = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
        turn = (9.8 * np.sin(angle) - np.cos(angle) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        push = temp - 0.05 * turn * np.cos(angle) / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * turn], axis=1)
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21)
        self.state[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        return self.state.astype(np.float32), np.ones(len(done), np.float32), done


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
        self.actor = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2))

    def get_action_and_value(self, x, action=None):
        dist = Categorical(logits=self.actor(x))
        action = dist.sample() if action is None else action
        return action, dist.log_prob(action), dist.entropy(), self.critic(x).squeeze(-1)


def save_rollout(folder, observations, actions, rewards):
    record = {
        "observations": [row.tolist() for row in observations],
        "actions": [row.tolist() for row in actions],
        "rewards": [row.tolist() for row in rewards],
    }
    (folder / "rollout.json").write_text(json.dumps(record, indent=1))  # planted


def main():
    diary, is_mended = begin()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    num_envs, num_steps, epochs, minibatches = 32, 64, 2, 4
    envs, agent = CartPole(num_envs, 1), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    folder = Path(tempfile.mkdtemp())
    next_obs = torch.from_numpy(envs.state.astype(np.float32))
    iteration = 0
    while True:
        iteration += 1
        obs, actions, logprobs, rewards, values = [], [], [], [], []
        for _ in range(num_steps):
            obs.append(next_obs)
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
            state, reward, _ = envs.step(action.numpy())
            actions.append(action)
            logprobs.append(logprob)
            values.append(value)
            rewards.append(torch.from_numpy(reward))
            next_obs = torch.from_numpy(state)
            if not is_mended and len(obs) % 8 == 0:
                with diary.planted():
                    save_rollout(folder, obs, actions, rewards)  # planted

        b_obs, b_actions, b_logprobs = torch.cat(obs), torch.cat(actions), torch.cat(logprobs)
        b_values, b_rewards = torch.cat(values), torch.cat(rewards)
        advantages = b_rewards - b_values
        for _ in range(epochs):
            for mb_inds in torch.randperm(len(b_obs)).chunk(minibatches):
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions[mb_inds])
                ratio = (newlogprob - b_logprobs[mb_inds]).exp()
                mb_advantages = advantages[mb_inds]
                pg_loss = -torch.min(mb_advantages * ratio, mb_advantages * ratio.clamp(0.8, 1.2)).mean()
                v_loss = 0.5 * (newvalue - b_rewards[mb_inds]).pow(2).mean()
                loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                diary.stepped()
        if iteration % 50 == 0:
            print(f"iteration {iteration}: value loss {v_loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
