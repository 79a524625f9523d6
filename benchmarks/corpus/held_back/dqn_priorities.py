"""A double DQN on a small reacher, with a replay memory that prefers what surprised the network."""

import math
import random
import sys
from collections import deque
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CAPACITY, BATCH, GAMMA, SYNC = 20_000, 192, 0.98, 250


class Reacher:
    """A point is pushed in one of four directions, and has to reach a target."""

    actions = ((0.1, 0.0), (-0.1, 0.0), (0.0, 0.1), (0.0, -0.1))

    def reset(self):
        self.x, self.y, self.target, self.age = 0.0, 0.0, (random.uniform(-1, 1), random.uniform(-1, 1)), 0
        return self.observe()

    def observe(self):
        return (self.x, self.y, *self.target, self.target[0] - self.x, self.target[1] - self.y)

    def step(self, action):
        dx, dy = self.actions[action]
        self.x, self.y, self.age = self.x + dx, self.y + dy, self.age + 1
        distance = math.hypot(self.target[0] - self.x, self.target[1] - self.y)
        return self.observe(), -distance, distance < 0.1 or self.age >= 60


class SortedMemory:
    def __init__(self, diary):
        self.diary, self.items = diary, deque(maxlen=CAPACITY)

    def push(self, transition, priority):
        self.items.append([priority, transition])

    def sample(self, size):
        with self.diary.planted():
            ranked = sorted(self.items, key=lambda item: item[0] * random.random(), reverse=True)  # planted
        chosen = ranked[:size]
        return chosen, [item[1] for item in chosen]

    def update(self, chosen, errors):
        for item, error in zip(chosen, errors, strict=True):
            item[0] = error


class ArrayMemory:
    def __init__(self):
        self.priorities, self.items, self.next = np.zeros(CAPACITY), [None] * CAPACITY, 0

    def push(self, transition, priority):
        slot = self.next % CAPACITY
        self.priorities[slot], self.items[slot] = priority, transition
        self.next += 1

    def sample(self, size):
        keys = self.priorities * np.random.random(CAPACITY)
        chosen = np.argpartition(keys, -size)[-size:]
        return chosen, [self.items[slot] for slot in chosen]

    def update(self, chosen, errors):
        self.priorities[chosen] = errors


def q_network():
    return nn.Sequential(nn.Linear(6, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))


@torch.no_grad()
def greedy(online, state):
    return int(online(torch.tensor(state)).argmax())


def learn(online, target, optimizer, memory):
    chosen, transitions = memory.sample(BATCH)  # planted
    columns = zip(*transitions, strict=True)
    state, action, reward, following, done = (torch.tensor(column, dtype=torch.float32) for column in columns)
    with torch.no_grad():
        best = online(following).argmax(1, keepdim=True)
        goal = reward + GAMMA * (1 - done) * target(following).gather(1, best).squeeze(1)
    value = online(state).gather(1, action.long().unsqueeze(1)).squeeze(1)
    loss = F.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    memory.update(chosen, (value - goal).abs().tolist())


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    memory = ArrayMemory() if is_mended else SortedMemory(diary)
    online, target = q_network(), q_network()
    optimizer = torch.optim.Adam(online.parameters(), lr=3e-4)
    env, steps, learned = Reacher(), 0, 0
    state = env.reset()
    while True:
        explores = steps < CAPACITY or random.random() < 0.1
        action = random.randrange(4) if explores else greedy(online, state)
        following, reward, done = env.step(action)
        memory.push((state, action, reward, following, float(done)), 1.0)
        state = env.reset() if done else following
        steps += 1
        if steps >= CAPACITY and steps % 16 == 0:
            learn(online, target, optimizer, memory)
            learned += 1
            if learned % SYNC == 0:
                target.load_state_dict(online.state_dict())
            diary.stepped()


if __name__ == "__main__":
    main()
