"""C51 on a game of catching blocks, after CleanRL's single file. Nothing is planted."""

import random
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Args:
    seed: int = 1
    learning_rate: float = 2.5e-4
    n_atoms: int = 51
    v_min: float = -5
    v_max: float = 5
    buffer_size: int = 20000
    gamma: float = 0.97
    target_network_frequency: int = 500
    batch_size: int = 64
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_steps: int = 8000
    learning_starts: int = 1500
    train_frequency: int = 4


class CatchBlocks:
    """Blocks fall on a grid; a paddle of three cells catches them. A miss costs a life, and there are three."""

    def __init__(self, seed, height=14, width=12):
        self.rng, self.height, self.width = random.Random(seed), height, width
        self.reset()

    def reset(self):
        self.lives, self.paddle, self.block = 3, self.width // 2, (0, self.rng.randrange(self.width))
        return self.draw()

    def draw(self):
        board = np.zeros((2, self.height, self.width), dtype=np.uint8)
        board[0][self.block] = board[1, -1, self.paddle - 1 : self.paddle + 2] = 1
        return board

    def step(self, action):
        self.paddle = min(max(self.paddle + action - 1, 1), self.width - 2)
        row, column = self.block
        drift = self.rng.choice((-1, 0, 0, 1))
        self.block, reward = (row + 1, min(max(column + drift, 0), self.width - 1)), 0.0
        if self.block[0] == self.height - 1:
            caught = abs(self.block[1] - self.paddle) <= 1
            reward, self.lives = (1.0, self.lives) if caught else (-1.0, self.lives - 1)
            self.block = (0, self.rng.randrange(self.width))
        return self.draw(), reward, self.lives == 0


class ReplayBuffer:
    def __init__(self, size, shape):
        self.observations = np.zeros((size, *shape), dtype=np.uint8)
        self.next_observations = np.zeros((size, *shape), dtype=np.uint8)
        self.actions, self.rewards = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.float32)
        self.dones = np.zeros(size, dtype=np.float32)
        self.size, self.pos, self.full = size, 0, False

    def add(self, obs, next_obs, action, reward, done):
        i = self.pos
        self.observations[i], self.next_observations[i] = obs, next_obs
        self.actions[i], self.rewards[i], self.dones[i] = action, reward, done
        self.pos = (i + 1) % self.size
        self.full = self.full or self.pos == 0

    def sample(self, number):
        idx = np.random.randint(0, self.size if self.full else self.pos, number)
        fields = (self.observations, self.next_observations, self.actions, self.rewards, self.dones)
        return [torch.from_numpy(field[idx]) for field in fields]


class QNetwork(nn.Module):
    def __init__(self, n_actions, args):
        super().__init__()
        self.n_atoms, self.n_actions = args.n_atoms, n_actions
        self.register_buffer("atoms", torch.linspace(args.v_min, args.v_max, args.n_atoms))
        convs = [nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()]
        head = [nn.Flatten(), nn.Linear(32 * 7 * 6, 256), nn.ReLU(), nn.Linear(256, n_actions * args.n_atoms)]
        self.network = nn.Sequential(*convs, *head)

    def get_action(self, x, action=None):
        logits = self.network(x.float()).view(len(x), self.n_actions, self.n_atoms)
        pmfs = logits.softmax(dim=2)
        if action is None:
            action = (pmfs * self.atoms).sum(2).argmax(1)
        return action, pmfs[torch.arange(len(x)), action]


def project(target_network, next_obs, rewards, dones, args):
    """Project the distribution of the target onto the atoms, for the whole batch at once."""
    _, next_pmfs = target_network.get_action(next_obs)
    next_atoms = rewards[:, None] + args.gamma * target_network.atoms * (1 - dones[:, None])
    delta_z = (args.v_max - args.v_min) / (args.n_atoms - 1)
    b = (next_atoms.clamp(args.v_min, args.v_max) - args.v_min) / delta_z
    low, up = b.floor().clamp(0, args.n_atoms - 1), b.ceil().clamp(0, args.n_atoms - 1)
    target = torch.zeros_like(next_pmfs)
    target.scatter_add_(1, low.long(), (up + (low == up).float() - b) * next_pmfs)
    target.scatter_add_(1, up.long(), (b - low) * next_pmfs)
    return target


@torch.no_grad()
def average_value(q_network, states):
    """Return the mean of the greedy values of states that stay the same, as the DQN paper tracks it."""
    _, pmfs = q_network.get_action(states)
    return (pmfs * q_network.atoms).sum(1).mean().item()


if __name__ == "__main__":
    diary, _ = begin()
    args = Args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    env = CatchBlocks(args.seed)
    q_network, target_network = QNetwork(3, args), QNetwork(3, args)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = optim.Adam(q_network.parameters(), lr=args.learning_rate, eps=0.01 / args.batch_size)
    rb = ReplayBuffer(args.buffer_size, (2, env.height, env.width))
    states = None
    obs, global_step, episode_return, returns = env.reset(), 0, 0.0, deque(maxlen=50)
    while True:
        explored = min(global_step / args.exploration_steps, 1.0)
        if random.random() < args.start_e + explored * (args.end_e - args.start_e):
            action = random.randrange(3)
        else:
            with torch.no_grad():
                action = q_network.get_action(torch.from_numpy(obs)[None])[0].item()
        next_obs, reward, done = env.step(action)
        rb.add(obs, next_obs, action, reward, done)
        episode_return += reward
        obs = next_obs
        if done:
            returns.append(episode_return)
            obs, episode_return = env.reset(), 0.0
        global_step += 1
        if global_step > args.learning_starts and global_step % args.train_frequency == 0:
            b_obs, b_next, b_actions, b_rewards, b_dones = rb.sample(args.batch_size)
            with torch.no_grad():
                target_pmfs = project(target_network, b_next, b_rewards, b_dones, args)
            _, old_pmfs = q_network.get_action(b_obs, b_actions)
            loss = (-(target_pmfs * old_pmfs.clamp(1e-5, 1 - 1e-5).log()).sum(-1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            diary.stepped()
            if global_step % 2000 == 0:
                value, gain = average_value(q_network, states), np.mean(returns)
                print(f"{global_step}: loss {loss.item():.3f} return {gain:.2f} value {value:.3f}", flush=True)
        elif global_step == args.learning_starts:
            states = torch.from_numpy(rb.observations[: rb.pos].copy())
            print(f"at first: value {average_value(q_network, states):.3f}", flush=True)
        if global_step % args.target_network_frequency == 0:
            target_network.load_state_dict(q_network.state_dict())
