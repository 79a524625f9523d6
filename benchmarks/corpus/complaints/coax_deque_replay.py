"""A DQN on a game of catching, whose replay buffer is a deque of a million transitions.

Complaint: coax-dev/coax, pull request 25, "use list for simple replay buffer" (and ageron/handson-ml 204, ShangtongZhang/DeepRL 83): the sampling
performance depends on the number of transitions, as a ``deque`` takes O(n) for an element in its middle. Fix: a list that is used as a ring. No
figure is named ("improves the performance significantly"). The buffer here is filled with games played at random before the training starts.
"""

import collections
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIDE, CAPACITY = 8, 1_000_000


@dataclass
class Settings:
    batch_size: int = 64
    gamma: float = 0.95
    epsilon: float = 0.1
    sync_every: int = 200


class Catch:
    """A ball falls through a grid, and the paddle at its floor moves by one cell."""

    def __init__(self, generator):
        self.generator = generator
        self.reset()

    def reset(self):
        self.row, self.column, self.paddle = 0, int(self.generator.integers(SIDE)), SIDE // 2
        return self.observe()

    def observe(self):
        board = np.zeros((SIDE, SIDE), dtype=np.float32)
        board[self.row, self.column] = 1
        board[-1, self.paddle] = 1
        return board.reshape(-1)

    def step(self, action):
        self.paddle = min(max(self.paddle + action - 1, 0), SIDE - 1)
        self.row += 1
        done = self.row == SIDE - 1
        return self.observe(), float(done and self.column == self.paddle) - float(done) / 2, done


class DequeBuffer:
    def __init__(self, capacity):
        self.storage = collections.deque(maxlen=capacity)

    def add(self, transition):
        self.storage.append(transition)

    def sample(self, count):
        return random.sample(self.storage, count)  # planted


class ListBuffer:
    def __init__(self, capacity):
        self.storage, self.next, self.capacity = [], 0, capacity

    def add(self, transition):
        if len(self.storage) < self.capacity:
            self.storage.append(transition)
        else:
            self.storage[self.next] = transition
            self.next = (self.next + 1) % self.capacity

    def sample(self, count):
        return random.sample(self.storage, count)


def play_at_random(env, buffer, games=6000):
    """Play some games, and fill the buffer with them again and again."""
    played = []
    for _ in range(games):
        state, done = env.reset(), False
        while not done:
            action = int(env.generator.integers(3))
            after, reward, done = env.step(action)
            played.append((state, action, reward, after, done))
            state = after
    for number in range(CAPACITY):
        buffer.add(played[number % len(played)])


class Agent:
    def __init__(self, settings):
        self.settings = settings
        self.online, self.target = self.network(), self.network()
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)

    def network(self):
        return nn.Sequential(nn.Linear(SIDE * SIDE, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3))

    @torch.no_grad()
    def act(self, state):
        if random.random() < self.settings.epsilon:
            return random.randrange(3)
        return int(self.online(torch.from_numpy(state)[None]).argmax())

    def learn(self, transitions):
        states, actions, rewards, after, done = map(np.array, zip(*transitions, strict=True))
        taken = self.online(torch.from_numpy(states)).gather(1, torch.from_numpy(actions)[:, None])[:, 0]
        with torch.no_grad():
            best = self.target(torch.from_numpy(after)).max(1).values * torch.from_numpy(~done)
        wanted = torch.from_numpy(rewards).float() + self.settings.gamma * best
        loss = nn.functional.smooth_l1_loss(taken, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    diary, is_mended = begin()
    settings, env = Settings(), Catch(np.random.default_rng(3))
    buffer = (ListBuffer if is_mended else DequeBuffer)(CAPACITY)
    play_at_random(env, buffer)
    agent, state = Agent(settings), env.reset()
    for step in range(10**9):
        action = agent.act(state)
        after, reward, done = env.step(action)
        buffer.add((state, action, reward, after, done))
        state = env.reset() if done else after
        with diary.planted():
            transitions = buffer.sample(settings.batch_size)  # planted
        agent.learn(transitions)
        if step % settings.sync_every == 0:
            agent.target.load_state_dict(agent.online.state_dict())
        diary.stepped()


if __name__ == "__main__":
    random.seed(3)
    torch.manual_seed(3)
    torch.set_num_threads(1)
    main()
