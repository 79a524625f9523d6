"""A2C with Random Network Distillation on mazes, drawn by emulators in processes, as in SubprocVecEnv."""

import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

NUM_ENVS, NUM_STEPS, SIZE = 12, 5, 20
FRAME_SECONDS = 0.001


class MazeEmulator:
    """A maze seen from above; the emulated console draws a frame in its own time."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.walls = (self.rng.random((SIZE, SIZE)) < 0.25).astype(np.uint8)
        self.at, self.goal = self.rng.integers(0, SIZE, (2, 2))
        self.walls[tuple(self.at)] = self.walls[tuple(self.goal)] = 0
        self.age = 0
        return self.frame()

    def frame(self):
        image = np.zeros((3, SIZE, SIZE), dtype=np.uint8)
        image[0], image[1][tuple(self.at)], image[2][tuple(self.goal)] = self.walls, 1, 1
        return image

    def step(self, action):
        time.sleep(FRAME_SECONDS)
        to = np.clip(self.at + ((0, 1), (1, 0), (0, -1), (-1, 0))[action], 0, SIZE - 1)
        if not self.walls[tuple(to)]:
            self.at = to
        self.age += 1
        reward = float((self.at == self.goal).all())
        done = reward > 0 or self.age >= 120
        return (self.reset() if done else self.frame()), reward, done


def serve(remote, unneeded, seed):
    for end in unneeded:
        end.close()
    emulator = MazeEmulator(seed)
    remote.send(emulator.frame())
    try:
        while True:
            remote.send(emulator.step(remote.recv()))
    except (EOFError, OSError, KeyboardInterrupt):
        return


class SubprocVecEnv:
    def __init__(self, num_envs):
        context = multiprocessing.get_context("fork")
        self.remotes = []
        for seed in range(num_envs):
            here, there = context.Pipe()
            unneeded = [*self.remotes, here]
            context.Process(target=serve, args=(there, unneeded, seed), daemon=True).start()
            there.close()
            self.remotes.append(here)

    def first_frames(self):
        return np.stack([remote.recv() for remote in self.remotes])

    def step(self, actions):
        results = []
        for remote, action in zip(self.remotes, actions, strict=True):
            remote.send(action)
            results.append(remote.recv())  # planted
        return self.join(results)

    def step_together(self, actions):
        for remote, action in zip(self.remotes, actions, strict=True):
            remote.send(action)
        return self.join([remote.recv() for remote in self.remotes])

    def join(self, results):
        frames, rewards, dones = zip(*results, strict=True)
        return np.stack(frames).astype(np.float32), np.array(rewards, np.float32), np.array(dones, np.float32)


def convs():
    first, second, third = nn.Conv2d(3, 64, 3, 2, 1), nn.Conv2d(64, 128, 3, 1, 1), nn.Conv2d(128, 128, 3, 2, 1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third, nn.ReLU(), nn.Flatten(), nn.Linear(128 * 25, 128))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = convs()
        self.actor, self.critic_ext, self.critic_int = nn.Linear(128, 4), nn.Linear(128, 1), nn.Linear(128, 1)

    def forward(self, x):
        h = F.relu(self.body(x))
        return Categorical(logits=self.actor(h)), self.critic_ext(h).squeeze(-1), self.critic_int(h).squeeze(-1)


def observe_randomly(envs, steps=200):
    """Return mean and deviation of pixels that a random policy sees, for the novelty."""
    rng = np.random.default_rng(0)
    frames = np.stack([envs.step_together(rng.integers(4, size=NUM_ENVS).tolist())[0] for _ in range(steps)])
    return torch.from_numpy(frames.mean((0, 1))).float(), torch.from_numpy(frames.std((0, 1)) + 0.05).float()


def returns_of(rewards, last, dones, gamma):
    returns = []
    for reward, done in zip(reversed(rewards), reversed(dones), strict=True):
        last = reward + gamma * last * (1 - done)
        returns.insert(0, last)
    return torch.cat(returns)


def main():
    diary, is_mended = begin()
    envs = SubprocVecEnv(NUM_ENVS)  # before torch computes: they are forked
    torch.manual_seed(1)
    torch.set_num_threads(1)
    obs, (mean, std) = torch.from_numpy(envs.first_frames()).float(), observe_randomly(envs)
    agent, predictor, target = Agent(), convs(), convs().requires_grad_(False)
    optimizer = torch.optim.RMSprop([*agent.parameters(), *predictor.parameters()], lr=3e-4, eps=1e-5)
    scale, update, goals = 1.0, 0, 0.0
    while True:
        frames, actions, rewards, dones = [], [], [], []
        for _ in range(NUM_STEPS):
            with torch.no_grad():
                action = agent(obs)[0].sample()
            if is_mended:
                new, reward, done = envs.step_together(action.tolist())
            else:
                with diary.planted():
                    new, reward, done = envs.step(action.tolist())  # planted
            frames.append(obs)
            actions.append(action)
            rewards.append(torch.from_numpy(reward))
            dones.append(torch.from_numpy(done))
            obs = torch.from_numpy(new)
        batch, after = torch.cat(frames), ((torch.cat([*frames[1:], obs]) - mean) / std).clamp(-5, 5)
        with torch.no_grad():
            _, last_ext, last_int = agent(obs)
            wanted = target(after)
        novelty = (predictor(after) - wanted).square().mean(1)
        scale = 0.99 * scale + 0.01 * novelty.std().item()
        curiosity = (novelty.detach() / (scale + 1e-8)).split(NUM_ENVS)
        ret_ext = returns_of(rewards, last_ext, dones, 0.99)
        ret_int = returns_of(curiosity, last_int, [torch.zeros(NUM_ENVS)] * NUM_STEPS, 0.95)
        dist, v_ext, v_int = agent(batch)
        advantage = (2 * (ret_ext - v_ext) + (ret_int - v_int)).detach()
        pg_loss = -(advantage * dist.log_prob(torch.cat(actions))).mean()
        v_loss = F.mse_loss(v_ext, ret_ext) + F.mse_loss(v_int, ret_int)
        loss = pg_loss + 0.5 * v_loss - 0.01 * dist.entropy().mean() + novelty.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*agent.parameters(), *predictor.parameters()], 0.5)
        optimizer.step()
        update, goals = update + 1, goals + sum(float(r.sum()) for r in rewards)
        if update % 100 == 0:
            print(f"update {update} goals {goals:.0f} novelty {novelty.mean().item():.2e}", flush=True)
        diary.stepped()


if __name__ == "__main__":
    main()
