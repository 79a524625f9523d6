"""DQN with hindsight on a game of flipped bits, all games played side by side; goals are relabelled item by item."""

import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

BITS, GAMES, BATCH, CAPACITY = 24, 32, 512, 2000


class BitFlips:
    """Games in which one bit is flipped a move until the goal is met."""

    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.bits = self.rng.integers(2, size=(GAMES, BITS)).astype(np.float32)
        self.goals = self.rng.integers(2, size=(GAMES, BITS)).astype(np.float32)

    def step(self, moves):
        before = self.bits.copy()
        self.bits[np.arange(GAMES), moves] = 1 - self.bits[np.arange(GAMES), moves]
        return before, self.bits.copy()


def compute_reward(achieved, goal):
    return 0.0 if np.array_equal(achieved, goal) else -1.0


class HindsightBuffer:
    """Whole games; of what is drawn, four of five get a goal that was met later on."""

    def __init__(self, rng):
        self.rng = rng
        self.before = np.zeros((CAPACITY, BITS, BITS), np.float32)
        self.after = np.zeros_like(self.before)
        self.moves = np.zeros((CAPACITY, BITS), np.int64)
        self.goals = np.zeros((CAPACITY, BITS), np.float32)
        self.size = self.next = 0

    def add(self, before, after, moves, goals):
        slots = (self.next + np.arange(GAMES)) % CAPACITY
        self.before[slots], self.after[slots] = before.swapaxes(0, 1), after.swapaxes(0, 1)
        self.moves[slots], self.goals[slots] = moves.T, goals
        self.next = (self.next + GAMES) % CAPACITY
        self.size = min(self.size + GAMES, CAPACITY)

    def draw(self):
        return self.rng.integers(self.size, size=BATCH), self.rng.integers(BITS, size=BATCH)

    def relabel(self, games, times):
        """Return a goal and a reward for each item."""
        goals, rewards = [], []
        for game, time in zip(games, times, strict=True):
            goal = self.goals[game]
            if random.random() < 0.8:
                goal = self.after[game, random.randint(time, BITS - 1)]
            goals.append(goal)
            rewards.append(compute_reward(self.after[game, time], goal))  # planted
        return np.stack(goals), np.array(rewards, np.float32)

    def relabel_at_once(self, games, times):
        later = self.rng.integers(times, BITS)
        hindsight = self.rng.random((BATCH, 1)) < 0.8
        goals = np.where(hindsight, self.after[games, later], self.goals[games])
        return goals, (self.after[games, times] == goals).all(1).astype(np.float32) - 1


def network():
    return nn.Sequential(nn.Linear(2 * BITS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, BITS))


@torch.no_grad()
def play(q, env, epsilon):
    """Play all games to the end and return what was seen, one row a move."""
    env.reset()
    seen = []
    for _ in range(BITS):
        moves = q(torch.from_numpy(np.concatenate([env.bits, env.goals], 1))).argmax(1).numpy()
        at_random = env.rng.random(GAMES) < epsilon
        moves = np.where(at_random, env.rng.integers(BITS, size=GAMES), moves)
        seen.append((*env.step(moves), moves))
    return [np.stack(column) for column in zip(*seen, strict=True)]


def main():
    diary, is_mended = begin()
    torch.manual_seed(1)
    random.seed(1)
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    env, buffer = BitFlips(rng), HindsightBuffer(rng)
    q, target = network(), network()
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=5e-4)
    for cycle in range(1_000_000_000):
        before, after, moves = play(q, env, max(0.05, 0.5 - cycle / 2000))
        buffer.add(before, after, moves, env.goals)
        for _ in range(40):
            games, times = buffer.draw()
            if is_mended:
                goals, rewards = buffer.relabel_at_once(games, times)
            else:
                with diary.planted():
                    goals, rewards = buffer.relabel(games, times)  # planted
            now = torch.from_numpy(np.concatenate([buffer.before[games, times], goals], 1))
            later = torch.from_numpy(np.concatenate([buffer.after[games, times], goals], 1))
            rewards, chosen = torch.from_numpy(rewards), torch.from_numpy(buffer.moves[games, times])
            with torch.no_grad():
                value = rewards + 0.98 * (rewards < 0) * target(later).max(1).values
                value.clamp_(-50, 0)
            loss = F.smooth_l1_loss(q(now).gather(1, chosen.unsqueeze(1)).squeeze(1), value)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()
        with torch.no_grad():
            for old, new in zip(target.parameters(), q.parameters(), strict=True):
                old.lerp_(new, 0.1)
        if cycle % 20 == 0:
            solved = (env.bits == env.goals).all(1).mean()
            print(f"cycle {cycle} loss {loss.item():.4f} solved {solved:.2f}", flush=True)


if __name__ == "__main__":
    main()
