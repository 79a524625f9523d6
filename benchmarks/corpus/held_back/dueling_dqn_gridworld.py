"""Double DQN with a dueling head in a grid world, 32 worlds side by side.

Nothing is planted: the replay memory is of arrays, worlds move together, and the target network follows at times.
"""

import os
import sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, WORLDS = 10, 32
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class GridWorlds:
    """A runner, a goal and six pits on each grid."""

    def __init__(self, count, rng):
        self.rng, self.rows = rng, np.arange(count)
        self.planes = np.zeros((count, 3, SIDE, SIDE), np.uint8)
        self.place, self.age = np.zeros((count, 2), int), np.zeros(count, int)
        self._reset(self.rows)

    def _reset(self, which):
        for world in which:
            cells = self.rng.choice(SIDE * SIDE, 8, replace=False)
            planes = self.planes[world].reshape(3, -1)
            planes[:] = 0
            planes[0, cells[0]] = planes[1, cells[1]] = 1
            planes[2, cells[2:]] = 1
            self.place[world], self.age[world] = divmod(int(cells[0]), SIDE), 0

    def step(self, actions):
        self.planes[self.rows, 0, self.place[:, 0], self.place[:, 1]] = 0
        self.place = np.clip(self.place + MOVES[actions], 0, SIDE - 1)
        at = self.place[:, 0], self.place[:, 1]
        self.planes[self.rows, 0, at[0], at[1]] = 1
        won, lost = self.planes[self.rows, 1, at[0], at[1]], self.planes[self.rows, 2, at[0], at[1]]
        self.age += 1
        reward = won.astype(np.float32) - lost - 0.01
        done, after = (won | lost).astype(bool) | (self.age > 60), self.planes.copy()
        self._reset(np.flatnonzero(done))
        return after, reward, done


class Replay:
    def __init__(self, size):
        self.before, self.after = (np.zeros((size, 3, SIDE, SIDE), np.uint8) for _ in range(2))
        self.action, self.reward = np.zeros(size, np.int64), np.zeros(size, np.float32)
        self.done, self.size, self.added = np.zeros(size, np.float32), size, 0

    def add(self, before, action, reward, after, done):
        at = (self.added + np.arange(len(action))) % self.size
        self.before[at], self.action[at], self.reward[at], self.after[at], self.done[at] = (
            before, action, reward, after, done,
        )  # fmt: skip
        self.added += len(action)

    def sample(self, rng, count):
        at = rng.integers(0, min(self.added, self.size), count)
        columns = (self.before, self.action, self.reward, self.after, self.done)
        return [torch.from_numpy(column[at]) for column in columns]


class Dueling(nn.Module):
    def __init__(self, width=56):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(width * 25, 256), nn.ReLU(),
        )  # fmt: skip
        self.value, self.advantage = nn.Linear(256, 1), nn.Linear(256, 4)

    def forward(self, planes):
        hidden = self.body(planes.float())
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(1, keepdim=True)


def td_loss(online, target, batch, gamma=0.97):
    before, action, reward, after, done = batch
    with torch.no_grad():
        best = online(after).argmax(1, keepdim=True)
        aim = reward + gamma * (1 - done) * target(after).gather(1, best).squeeze(1)
    return F.smooth_l1_loss(online(before).gather(1, action[:, None]).squeeze(1), aim)


diary, _ = begin()
torch.set_num_threads(1)
torch.manual_seed(6)
rng = np.random.default_rng(6)
worlds, replay, online, target = GridWorlds(WORLDS, rng), Replay(50_000), Dueling(), Dueling().requires_grad_(False)
target.load_state_dict(online.state_dict())
optimizer = optim.RMSprop(online.parameters(), lr=2.5e-4, alpha=0.95, eps=0.01)
won, frame = 0.0, 0
while True:
    before = worlds.planes.copy()
    with torch.inference_mode():
        actions = online(torch.from_numpy(before)).argmax(1).numpy()
    explore = rng.random(WORLDS) < max(0.05, 1 - frame / 5000)
    actions = np.where(explore, rng.integers(0, 4, WORLDS), actions)
    after, reward, done = worlds.step(actions)
    replay.add(before, actions, reward, after, done)
    won = 0.99 * won + 0.01 * float((reward > 0.5).sum()) / max(1, int(done.sum()))
    frame += 1
    if replay.added < 2000:
        continue
    loss = td_loss(online, target, replay.sample(rng, 160))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if frame % 250 == 0:
        target.load_state_dict(online.state_dict())
        print(f"frame {frame} won {won:.2f} loss {loss.item():.4f}", flush=True)
    diary.stepped()
