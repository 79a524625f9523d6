"""PPO for two behaviours, a thread for each trainer as in ML-Agents; the one that gets no samples polls its queue all along.

After ml-agents pull request 3817 ("Bugfixes for Threaded Trainers"): "If there is more than one trainer but no samples are
produced by the environment for that trainer (e.g. WallJump's swappable brains) the idle trainer busy-waits polling the
trajectory queue." The idle thread holds the interpreter's lock, so each operation of the other thread waits for the lock
afterwards. The fix: the thread sleeps for 0.1 ms if a queue had nothing. The source names no gain.
"""

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class TrainerSettings:
    batch_size: int = 4096
    buffer_size: int = 8192
    num_epoch: int = 4
    hidden_units: int = 768
    yields_when_idle: bool = False


class WallJumpEnv:
    """Agents before a wall, by rays; the height of the wall chooses the behaviour, and here it is always low."""

    behaviors, agents, rays, actions = ("SmallWallJump", "BigWallJump"), 512, 222, 9

    def __init__(self):
        self.behavior = self.behaviors[0]
        self.maps, self.moves = torch.randn(4, self.rays), torch.randn(self.actions, 4) * 0.2
        self.position = torch.zeros(self.agents, 4)

    def step(self, actions):
        self.position = (self.position + self.moves[actions]).clamp(-2, 2)
        return 1 - (self.position - 1).abs().mean(-1)


class ActorCritic(nn.Module):
    def __init__(self, width):
        super().__init__()
        hidden = [part for _ in range(2) for part in (nn.Linear(width, width), nn.ReLU())]
        self.body = nn.Sequential(nn.Linear(WallJumpEnv.rays, width), nn.ReLU(), *hidden)
        self.policy, self.value = nn.Linear(width, WallJumpEnv.actions), nn.Linear(width, 1)

    def forward(self, observations):
        hidden = self.body(observations)
        return self.policy(hidden).log_softmax(-1), self.value(hidden)[:, 0]


class PPOTrainer:
    def __init__(self, behavior, settings, diary):
        self.behavior, self.settings, self.diary = behavior, settings, diary
        self.trajectory_queue = Queue(maxsize=2)
        self.policy = ActorCritic(settings.hidden_units)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), 3e-4, fused=True)
        self.update_buffer, self.updates = [], 0

    def advance(self):
        """Take the trajectories that are there, and update the policy if they are enough."""
        queried = False
        for _ in range(self.trajectory_queue.qsize()):  # planted
            queried = True
            self.update_buffer.append(self.trajectory_queue.get_nowait())
        if self.settings.yields_when_idle and not queried:
            time.sleep(0.0001)
        if sum(len(one[0]) for one in self.update_buffer) >= self.settings.buffer_size:  # planted
            self._update_policy()

    def _update_policy(self):
        columns = [torch.cat(column) for column in zip(*self.update_buffer, strict=True)]
        self.update_buffer, self.updates = [], self.updates + 1
        for _ in range(self.settings.num_epoch):
            for chosen in torch.randperm(len(columns[0])).split(self.settings.batch_size):
                loss = self._update_batch(*(column[chosen] for column in columns))
        if self.updates % 10 == 0:
            print(f"{self.behavior}: {self.updates} updates, loss {loss:.3f}", flush=True)

    def _update_batch(self, observations, actions, old_log_probs, advantages, returns):
        log_shares, values = self.policy(observations)
        ratio = (log_shares.gather(1, actions[:, None])[:, 0] - old_log_probs).exp()
        entropy = -(log_shares.exp() * log_shares).sum(-1).mean()
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean() - 5e-3 * entropy
        loss = loss + 0.5 * nn.functional.mse_loss(values, returns)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.diary.stepped()
        return loss


class TrainerController:
    """Steps the environment in the main thread; each trainer advances in a thread of its own."""

    def __init__(self, settings, diary):
        self.settings, self.env = settings, WallJumpEnv()
        self.trainers = {name: PPOTrainer(name, settings, diary) for name in WallJumpEnv.behaviors}

    def trainer_update_func(self, trainer):
        while True:
            trainer.advance()  # planted

    def start_learning(self):
        for trainer in self.trainers.values():
            threading.Thread(target=self.trainer_update_func, args=(trainer,), daemon=True).start()
        while True:
            self.trainers[self.env.behavior].trajectory_queue.put(self.collect())

    @torch.no_grad()
    def collect(self):
        """Run the policy for a horizon, and say how good each action was by generalized advantages."""
        steps, policy = [], self.trainers[self.env.behavior].policy
        for _ in range(16):
            observations = torch.tanh(self.env.position @ self.env.maps)
            log_shares, values = policy(observations)
            actions = torch.multinomial(log_shares.exp(), 1)
            log_probs = log_shares.gather(1, actions)[:, 0]
            steps.append((observations, actions[:, 0], log_probs, values, self.env.step(actions[:, 0])))
        observations, actions, log_probs, values, rewards = (torch.stack(column) for column in zip(*steps, strict=True))
        advantages, ahead = torch.zeros_like(rewards), torch.zeros(self.env.agents)
        for step in reversed(range(len(rewards) - 1)):
            ahead = rewards[step] + 0.99 * values[step + 1] - values[step] + 0.99 * 0.95 * ahead
            advantages[step] = ahead
        parts = (observations, actions, log_probs, advantages / (advantages.std() + 1e-6), advantages + values)
        return tuple(part.flatten(0, 1) for part in parts)


if __name__ == "__main__":
    torch.manual_seed(7)
    torch.set_num_threads(1)
    diary, is_mended = begin()
    TrainerController(TrainerSettings(yields_when_idle=is_mended), diary).start_learning()
