"""Discrete SAC after CleanRL on a bank of elevators that is simulated in processes of its own, behind pipes.

The learner sleeps, asks the pipes whether there is an answer, and sleeps again where there is none.
"""

import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

WORKERS, BUILDINGS, FLOORS, ACTIONS = 1, 8, 12, 3
OBSERVATION = 2 * FLOORS + 1


class Elevator:
    """One car: down, stay or up; who waits costs, who is fetched pays."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.floor, self.clock, self.waiting = 0, 0, np.zeros(FLOORS, np.float32)
        return self.observe()

    def observe(self):
        seen = np.zeros(OBSERVATION, np.float32)
        seen[self.floor] = 1
        seen[FLOORS : 2 * FLOORS] = self.waiting / 4
        seen[-1] = self.clock / 200
        return seen

    def step(self, action):
        self.floor = min(max(self.floor + action - 1, 0), FLOORS - 1)
        fetched, self.waiting[self.floor] = self.waiting[self.floor], 0
        if self.rng.random() < 0.3:
            self.waiting[self.rng.integers(FLOORS)] += 1
        self.clock += 1
        done = self.clock >= 200
        reward = float(fetched - 0.05 * self.waiting.sum())
        return (self.reset() if done else self.observe()), reward, done


def work(conn, others, seed):
    for other in others:
        other.close()
    buildings = [Elevator(seed + index) for index in range(BUILDINGS)]
    conn.send([building.reset() for building in buildings])
    while conn.poll(30):
        try:
            actions = conn.recv()
            conn.send([building.step(action) for building, action in zip(buildings, actions, strict=True)])
        except (EOFError, OSError):
            return


class PipeEnvs:
    def __init__(self, is_polling, poll_interval=0.015):
        self.is_polling, self.poll_interval, self.conns = is_polling, poll_interval, []
        context = multiprocessing.get_context("fork")
        for worker in range(WORKERS):
            ours, theirs = context.Pipe()
            context.Process(target=work, args=(theirs, [*self.conns, ours], 100 * worker), daemon=True).start()
            theirs.close()
            self.conns.append(ours)
        self.first = np.array([seen for conn in self.conns for seen in conn.recv()])

    def send(self, actions):
        for conn, part in zip(self.conns, np.split(actions, WORKERS), strict=True):
            conn.send(part.tolist())

    def receive(self):
        if self.is_polling:
            pending = self.conns
            while pending:
                time.sleep(self.poll_interval)  # planted
                pending = [conn for conn in pending if not conn.poll()]
        seen, rewards, dones = zip(*(answer for conn in self.conns for answer in conn.recv()), strict=True)
        return np.array(seen), np.array(rewards, np.float32), np.array(dones, np.float32)


class Memory:
    def __init__(self, size):
        self.size, self.at, self.full = size, 0, False
        self.seen, self.then = torch.zeros(size, OBSERVATION), torch.zeros(size, OBSERVATION)
        self.actions, self.rewards, self.dones = (
            torch.zeros(size, dtype=torch.long),
            torch.zeros(size),
            torch.zeros(size),
        )

    def add(self, seen, actions, rewards, then, dones):
        rows = slice(self.at, self.at + len(actions))
        self.seen[rows], self.then[rows] = torch.from_numpy(seen), torch.from_numpy(then)
        self.actions[rows], self.rewards[rows] = torch.from_numpy(actions), torch.from_numpy(rewards)
        self.dones[rows] = torch.from_numpy(dones)
        self.at += len(actions)
        if self.at + len(actions) > self.size:
            self.at, self.full = 0, True

    def sample(self, count):
        rows = torch.randint(self.size if self.full else self.at, (count,))
        return self.seen[rows], self.actions[rows], self.rewards[rows], self.then[rows], self.dones[rows]


def network():
    return nn.Sequential(
        nn.Linear(OBSERVATION, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, ACTIONS)
    )


def main(diary, is_mended):
    envs = PipeEnvs(is_polling=not is_mended)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    actor, q1, q2, target1, target2 = (network() for _ in range(5))
    target1.load_state_dict(q1.state_dict())
    target2.load_state_dict(q2.state_dict())
    q_optimizer = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=3e-4, fused=True)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4, fused=True)
    memory, seen, alpha, gamma, tau = Memory(40_000), envs.first, 0.05, 0.99, 0.005
    for step in range(1, 10**9):
        with torch.no_grad():
            actions = Categorical(logits=actor(torch.from_numpy(seen))).sample().numpy()
        envs.send(actions)
        if is_mended:
            then, rewards, dones = envs.receive()
        else:
            with diary.planted():
                then, rewards, dones = envs.receive()  # planted
        memory.add(seen, actions, rewards, then, dones)
        seen = then

        was, acted, rewarded, became, ended = memory.sample(512)
        with torch.no_grad():
            log_pi = F.log_softmax(actor(became), dim=1)
            value = (log_pi.exp() * (torch.minimum(target1(became), target2(became)) - alpha * log_pi)).sum(1)
            goal = rewarded + gamma * (1 - ended) * value
        first, second = q1(was), q2(was)
        chosen = acted.unsqueeze(1)
        q_loss = F.mse_loss(first.gather(1, chosen).squeeze(1), goal) + F.mse_loss(
            second.gather(1, chosen).squeeze(1), goal
        )
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()

        log_pi = F.log_softmax(actor(was), dim=1)
        actor_loss = (log_pi.exp() * (alpha * log_pi - torch.minimum(first, second).detach())).sum(1).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(
                [*target1.parameters(), *target2.parameters()], [*q1.parameters(), *q2.parameters()], tau
            )
        diary.stepped()
        if step % 500 == 0:
            print(f"step {step} q {q_loss.item():.4f} reward {memory.rewards.mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main(*begin())
