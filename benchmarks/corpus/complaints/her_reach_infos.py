"""DDPG with hindsight on a reaching arm, written as Stable-Baselines3 is; its buffer copies the infos of each sample.

After stable-baselines3 pull request 704 ("Multiprocessing support for HerReplayBuffer"): its author saw that "the info dict
deepcopy was taking a non-negligible amount of time", while the info is rarely used to compute the reward. So the copy
became an option, `copy_info_dict`, which the documentation says may cause a slowdown and which is off by default. Here it
is on, and the reward needs no info. The fix: leave it off. The source names no gain.
"""

import copy
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class ReachEnv:
    """An arm's tip that is to come to a point; observations are dicts, as those of a GoalEnv."""

    def reset(self):
        self.steps, self.speed = 0, np.zeros(3)
        self.tip, self.goal = np.random.uniform(-0.15, 0.15, (2, 3))
        return self._observe()

    def _observe(self):
        parts = {"observation": np.append(self.tip, self.speed), "achieved_goal": self.tip, "desired_goal": self.goal}
        return {key: value.astype(np.float32) for key, value in parts.items()}

    def compute_reward(self, achieved_goal, desired_goal, _info):
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > 0.05).astype(np.float32)

    def step(self, action):
        self.steps += 1
        self.speed = 0.5 * self.speed + 0.02 * action
        self.tip = np.clip(self.tip + self.speed, -0.3, 0.3)
        distance, timed_out = float(np.linalg.norm(self.tip - self.goal)), self.steps >= 50
        info = {"is_success": np.bool_(distance < 0.05), "distance": distance, "TimeLimit.truncated": timed_out}
        info |= {"tip": {"position": self.tip, "velocity": self.speed}, "command": {"force": action, "gain": 0.02}}
        return self._observe(), float(self.compute_reward(self.tip, self.goal, info)), timed_out, info


class HerReplayBuffer:
    """Transitions of whole episodes; most of a sample gets a goal that the episode reached later."""

    def __init__(self, env, diary, copy_info_dict, size=50_000):
        self.env, self.diary, self.copy_info_dict, self.size = env, diary, copy_info_dict, size
        self.pos, self.full, self.current = 0, False, []
        self.observations = {key: np.zeros((size, len(value)), np.float32) for key, value in env.reset().items()}
        self.next_observations = {key: np.zeros_like(value) for key, value in self.observations.items()}
        self.actions, self.rewards = np.zeros((size, 3), np.float32), np.zeros(size, np.float32)
        self.infos, self.ep_end = np.array([{} for _ in range(size)]), np.zeros(size, np.int64)

    def add(self, obs, next_obs, action, reward, done, info):
        for key, value in obs.items():
            self.observations[key][self.pos], self.next_observations[key][self.pos] = value, next_obs[key]
        self.actions[self.pos], self.rewards[self.pos], self.infos[self.pos] = action, reward, info
        self.current.append(self.pos)
        if done:
            self.ep_end[self.current] = self.pos
            self.current = []
        self.full |= self.pos + 1 == self.size
        self.pos = (self.pos + 1) % self.size

    def sample(self, batch_size, her_ratio=0.8):
        indices = np.random.randint(0, self.size if self.full else self.pos, batch_size)
        obs = {key: value[indices] for key, value in self.observations.items()}
        next_obs = {key: value[indices] for key, value in self.next_observations.items()}
        rewards, virtual = self.rewards[indices], indices[: int(her_ratio * batch_size)]
        later = np.random.randint(virtual, np.maximum(self.ep_end[virtual], virtual) + 1)
        goals = self.next_observations["achieved_goal"][later]
        obs["desired_goal"][: len(virtual)] = next_obs["desired_goal"][: len(virtual)] = goals
        if self.copy_info_dict:
            with self.diary.planted():
                infos = copy.deepcopy(self.infos[virtual])  # planted
        else:
            infos = [{} for _ in virtual]
        rewards[: len(virtual)] = self.env.compute_reward(next_obs["achieved_goal"][: len(virtual)], goals, infos)
        data = [np.concatenate(list(part.values()), 1) for part in (obs, next_obs)]
        return [torch.from_numpy(part) for part in (*data, self.actions[indices], rewards[:, None])]


def create_mlp(inputs, outputs, *last, width=192):
    hidden = [part for _ in range(2) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), *hidden, nn.Linear(width, outputs), *last)


class DDPG:
    def __init__(self, env, diary, replay_buffer, gamma=0.95, tau=0.05):
        self.env, self.diary, self.replay_buffer, self.gamma, self.tau = env, diary, replay_buffer, gamma, tau
        self.actor, self.critic = nets = create_mlp(12, 3, nn.Tanh()), create_mlp(15, 1)
        self.actor_target, self.critic_target = copy.deepcopy(nets)
        self.actor_optimizer, self.critic_optimizer = (torch.optim.Adam(net.parameters(), 1e-3) for net in nets)

    def train(self, batch_size=512):
        obs, next_obs, actions, rewards = self.replay_buffer.sample(batch_size)  # planted
        with torch.no_grad():
            next_value = self.critic_target(torch.cat([next_obs, self.actor_target(next_obs)], 1))
            wanted = (rewards + self.gamma * next_value).clamp_(-1 / (1 - self.gamma), 0)
        critic_loss = nn.functional.mse_loss(self.critic(torch.cat([obs, actions], 1)), wanted)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        actor_loss = -self.critic(torch.cat([obs, self.actor(obs)], 1)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        with torch.no_grad():
            for net, target in ((self.actor, self.actor_target), (self.critic, self.critic_target)):
                torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), self.tau)
        self.diary.stepped()

    def learn(self, total_timesteps, learning_starts=2_000):
        obs, successes = self.env.reset(), []
        for timestep in range(total_timesteps):
            with torch.no_grad():
                action = self.actor(torch.from_numpy(np.concatenate(list(obs.values())))).numpy()
            action = np.clip(action + np.random.normal(0, 0.1, 3), -1, 1)
            next_obs, reward, done, info = self.env.step(action)
            self.replay_buffer.add(obs, next_obs, action, reward, done, info)
            obs = self.env.reset() if done else next_obs
            successes += [info["is_success"]] * done
            if len(successes) == 50:
                print(f"timestep {timestep}: success rate {np.mean(successes):.2f}", flush=True)
                successes.clear()
            if timestep >= learning_starts:
                self.train()


if __name__ == "__main__":
    np.random.seed(4)
    torch.manual_seed(4)
    torch.set_num_threads(1)
    diary, is_mended = begin()
    env = ReachEnv()
    replay_buffer = HerReplayBuffer(env, diary, copy_info_dict=not is_mended)  # planted
    DDPG(env, diary, replay_buffer).learn(10**9)
