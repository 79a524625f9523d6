"""A crane that swings little, learned from an actor in another process, in the style of small IMPALA repositories.

The learner looks for new rollouts now and then, and sleeps before each look.
"""

import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

CRANES, LENGTH, STATE, MOVES = 64, 20, 4, 5
POLL_SECONDS = 0.012


class CraneYard:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = 0.1 * self.rng.normal(size=(CRANES, STATE)).astype(np.float32)

    def step(self, moves):
        trolley, speed, angle, spin = self.state.T
        push = (moves - MOVES // 2) * 0.5
        turn = -9.8 * np.sin(angle) - push * np.cos(angle) - 0.1 * spin
        new = np.stack([trolley + 0.05 * speed, speed + 0.05 * push, angle + 0.05 * spin, spin + 0.05 * turn], axis=1)
        lost = np.abs(new[:, 0]) > 5
        new[lost] = 0.1 * self.rng.normal(size=(lost.sum(), STATE))
        self.state = new.astype(np.float32)
        return 1.0 - np.abs(angle) - 0.05 * np.abs(trolley)


def act_for_ever(connection, learner_end):
    """Play rollouts with the weights that come, until the learner is gone."""
    learner_end.close()
    yard = CraneYard(5)
    while True:
        try:
            first, second = connection.recv()
        except (EOFError, ConnectionError):
            return
        states = np.empty((LENGTH + 1, CRANES, STATE), np.float32)
        moves = np.empty((LENGTH, CRANES), np.int64)
        rewards = np.empty((LENGTH, CRANES), np.float32)
        for t in range(LENGTH):
            states[t] = yard.state
            logits = np.tanh(yard.state @ first) @ second
            noise = yard.rng.gumbel(size=logits.shape)
            moves[t] = (logits + noise).argmax(axis=1)
            rewards[t] = yard.step(moves[t])
        states[LENGTH] = yard.state
        connection.send((states, moves, rewards))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(STATE, 32, bias=False)
        self.second = nn.Linear(32, MOVES, bias=False)
        self.critic = nn.Sequential(
            nn.Linear(STATE, 256), nn.ELU(), nn.Linear(256, 256), nn.ELU(), nn.Linear(256, 1)
        )  # fmt: skip

    def forward(self, states):
        return self.second(torch.tanh(self.first(states))), self.critic(states).squeeze(-1)

    def exported(self):
        return self.first.weight.detach().numpy().T.copy(), self.second.weight.detach().numpy().T.copy()


class Learner:
    def __init__(self, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended
        self.connection, actors_end = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        context.Process(target=act_for_ever, args=(actors_end, self.connection), daemon=True).start()
        actors_end.close()
        torch.manual_seed(2)
        torch.set_num_threads(1)
        self.model = ActorCritic()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=5e-4, alpha=0.99)

    def next_rollout(self):
        if self.is_mended:
            return self.connection.recv()
        while True:
            time.sleep(POLL_SECONDS)  # planted
            if self.connection.poll():
                return self.connection.recv()

    def update(self, states, moves, rewards):
        logits, values = self.model(states)
        returns, following = torch.empty_like(rewards), values[-1].detach()
        for t in reversed(range(LENGTH)):
            following = rewards[t] + 0.97 * following
            returns[t] = following
        advantages = returns - values[:-1]
        log_probs = F.log_softmax(logits[:-1], dim=-1)
        chosen = log_probs.gather(-1, moves.unsqueeze(-1)).squeeze(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = -(chosen * advantages.detach()).mean() + 0.5 * advantages.square().mean() - 0.01 * entropy
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def learn(self):
        self.connection.send(self.model.exported())
        updates = 0
        while True:
            if self.is_mended:
                rollout = self.next_rollout()
            else:
                with self.diary.planted():
                    rollout = self.next_rollout()  # planted
            self.connection.send(self.model.exported())
            loss = self.update(*map(torch.from_numpy, rollout))
            updates += 1
            self.diary.stepped()
            if updates % 200 == 0:
                print(f"{updates} updates, loss {loss.item():.3f}, reward {rollout[2].mean():.3f}", flush=True)


if __name__ == "__main__":
    Learner(*begin()).learn()
