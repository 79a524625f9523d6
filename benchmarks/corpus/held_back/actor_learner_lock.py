"""An actor that walks a simulated robot beside its learner: it keeps the buffer locked while it waits for the robot."""

import copy
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

OBS, ACT, BATCH, GAMMA, TAU = 12, 3, 256, 0.98, 0.005
ROLLOUT, CONTROL_S, PAUSE_S = 10, 0.002, 0.02


class ReplayBuffer:
    def __init__(self, capacity=50_000):
        self.lock = threading.Lock()
        self.rows = np.zeros((capacity, 2 * OBS + ACT + 2), dtype=np.float32)
        self.size, self.at = 0, 0

    def add(self, row):
        self.rows[self.at] = row
        self.at = (self.at + 1) % len(self.rows)
        self.size = min(self.size + 1, len(self.rows))

    def sample(self, rng):
        batch = torch.from_numpy(self.rows[rng.integers(self.size, size=BATCH)])
        return batch.split([OBS, ACT, 1, 1, OBS], 1)


class Robot:
    """Joints that should come to rest; a command takes as long as the control loop of the robot has for it."""

    def __init__(self, rng):
        self.rng = rng
        self.push = 0.3 * rng.normal(size=(ACT, OBS)).astype(np.float32)
        self.reset()

    def reset(self):
        self.state = self.rng.normal(size=OBS).astype(np.float32)
        return self.state

    def command(self, action):
        time.sleep(CONTROL_S)
        noise = 0.02 * self.rng.normal(size=OBS).astype(np.float32)
        self.state = 0.97 * self.state + action @ self.push + noise
        return self.state, -float(np.square(self.state).mean()), bool(self.rng.random() < 0.01)


class Actor(threading.Thread):
    def __init__(self, policy, buffer, holds_lock):
        super().__init__(daemon=True)
        self.policy, self.buffer, self.holds_lock = copy.deepcopy(policy), buffer, holds_lock
        self.rng = np.random.default_rng(1)
        self.robot = Robot(self.rng)

    @torch.no_grad()
    def transition(self):
        before = self.robot.state
        action = self.policy(torch.from_numpy(before)).tanh().numpy()
        action = action + 0.1 * self.rng.normal(size=ACT).astype(np.float32)
        after, reward, done = self.robot.command(action)
        if done:
            self.robot.reset()
        return np.concatenate([before, action, [reward, float(done)], after])

    def rollout(self):
        if self.holds_lock:
            with self.buffer.lock:  # planted
                for _ in range(ROLLOUT):
                    self.buffer.add(self.transition())  # planted
            return
        rows = [self.transition() for _ in range(ROLLOUT)]
        with self.buffer.lock:
            for row in rows:
                self.buffer.add(row)

    def run(self):
        while True:
            self.rollout()
            time.sleep(PAUSE_S)  # the robot is slower than the learner: it has a rate of its own


def mlp(before, after, width=256):
    return nn.Sequential(
        nn.Linear(before, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, after)
    )


class Learner:
    """Deterministic policy gradients with two critics."""

    def __init__(self, policy):
        self.policy, self.critics = policy, nn.ModuleList(mlp(OBS + ACT, 1) for _ in range(2))
        self.slow_policy, self.slow_critics = copy.deepcopy(policy), copy.deepcopy(self.critics)
        self.policy_optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=3e-4)

    def update(self, obs, action, reward, done, after):
        with torch.no_grad():
            smooth = (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)
            pair = torch.cat([after, (self.slow_policy(after).tanh() + smooth).clamp(-1, 1)], 1)
            value = torch.min(self.slow_critics[0](pair), self.slow_critics[1](pair))
            target = reward + GAMMA * (1 - done) * value
        pair = torch.cat([obs, action], 1)
        critic_loss = sum(F.mse_loss(critic(pair), target) for critic in self.critics)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        policy_loss = -self.critics[0](torch.cat([obs, self.policy(obs).tanh()], 1)).mean()
        self.policy_optimizer.zero_grad()
        policy_loss.backward()
        self.policy_optimizer.step()
        with torch.no_grad():
            for slow, fast in ((self.slow_policy, self.policy), (self.slow_critics, self.critics)):
                for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                    old.lerp_(new, TAU)
        return critic_loss, policy_loss


def main(diary, is_mended):
    policy, rng = mlp(OBS, ACT), np.random.default_rng(0)
    buffer, learner = ReplayBuffer(), Learner(policy)
    actor = Actor(policy, buffer, holds_lock=not is_mended)
    actor.start()
    while buffer.size < 2 * BATCH:
        time.sleep(0.1)
    for step in range(10**9):
        with diary.planted():
            buffer.lock.acquire()  # planted
        batch = buffer.sample(rng)
        buffer.lock.release()
        critic_loss, policy_loss = learner.update(*batch)
        diary.stepped()
        if step % 100 == 0:
            actor.policy.load_state_dict(policy.state_dict())
        if step % 500 == 0:
            print(
                f"{step}: critic {critic_loss.item():.3f}, policy {policy_loss.item():.3f}, {buffer.size} transitions"
            )


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
