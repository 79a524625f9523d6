"""Soft actor-critic after CleanRL's single file; the replay buffer makes arrays of the whole buffer at each sample."""

import random
import sys
from collections import deque, namedtuple
from pathlib import Path

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

Transition = namedtuple("Transition", "obs next_obs action reward done")


class Pendulum:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state, self.t = self.rng.uniform(-1, 1, 2), 0
        return self._obs()

    def _obs(self):
        return np.array([np.cos(self.state[0]), np.sin(self.state[0]), self.state[1]], dtype=np.float32)

    def step(self, action):
        th, thdot = self.state
        thdot = np.clip(thdot + (15 * np.sin(th) + 3 * float(action[0])) * 0.05, -8, 8)
        self.state = np.array([th + thdot * 0.05, thdot])
        self.t += 1
        return self._obs(), -(th**2 + 0.1 * thdot**2), self.t >= 200


class ListBuffer:
    def __init__(self, size):
        self.storage = deque(maxlen=size)

    def add(self, *row):
        self.storage.append(Transition(*row))

    def sample(self, count):
        columns = [np.asarray(column, dtype=np.float32) for column in zip(*self.storage, strict=False)]  # planted
        chosen = np.random.randint(len(self.storage), size=count)
        return Transition(*(torch.from_numpy(column[chosen]) for column in columns))


class ArrayBuffer:
    def __init__(self, size):
        self.size, self.position, self.full = size, 0, False
        self.columns = [np.zeros((size, width), np.float32) for width in (3, 3, 1, 1, 1)]

    def add(self, *row):
        for column, value in zip(self.columns, row, strict=False):
            column[self.position] = value
        self.position = (self.position + 1) % self.size
        self.full |= self.position == 0

    def sample(self, count):
        chosen = np.random.randint(self.size if self.full else self.position, size=count)
        return Transition(*(torch.from_numpy(column[chosen]) for column in self.columns))


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, n_out))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(3, 2)

    def get_action(self, x):
        mean, log_std = self.body(x).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        x_t = normal.rsample()
        action = torch.tanh(x_t)
        return action, (normal.log_prob(x_t) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)


if __name__ == "__main__":
    diary, is_mended = begin()
    torch.set_num_threads(1)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    env, actor = Pendulum(1), Actor()
    qf1, qf2, qf1_target, qf2_target = (mlp(4, 1) for _ in range(4))
    q_optimizer = optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=1e-3)
    actor_optimizer = optim.Adam(actor.parameters(), lr=3e-4)
    rb = ArrayBuffer(3000) if is_mended else ListBuffer(3000)
    obs = env.reset()
    for global_step in range(1_000_000_000):
        with torch.no_grad():
            action = actor.get_action(torch.from_numpy(obs)[None])[0][0].numpy()
        next_obs, reward, done = env.step(action)
        rb.add(obs, next_obs, action, [reward], [float(done)])
        obs = env.reset() if done else next_obs
        if global_step < 2500:
            continue
        with diary.planted():
            data = rb.sample(256)  # planted
        with torch.no_grad():
            next_action, next_log_pi = actor.get_action(data.next_obs)
            pair = torch.cat([data.next_obs, next_action], 1)
            min_q = torch.min(qf1_target(pair), qf2_target(pair)) - 0.2 * next_log_pi
            target = data.reward + (1 - data.done) * 0.99 * min_q
        pair = torch.cat([data.obs, data.action], 1)
        qf_loss = F.mse_loss(qf1(pair), target) + F.mse_loss(qf2(pair), target)
        q_optimizer.zero_grad()
        qf_loss.backward()
        q_optimizer.step()
        if global_step % 2 == 0:
            pi, log_pi = actor.get_action(data.obs)
            pair = torch.cat([data.obs, pi], 1)
            actor_loss = (0.2 * log_pi - torch.min(qf1(pair), qf2(pair))).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
        with torch.no_grad():
            for net, aim in ((qf1, qf1_target), (qf2, qf2_target)):
                for param, target_param in zip(net.parameters(), aim.parameters(), strict=False):
                    target_param.lerp_(param, 0.005)
        diary.stepped()
        if global_step % 500 == 0:
            print("global_step", global_step, qf_loss.item(), flush=True)
