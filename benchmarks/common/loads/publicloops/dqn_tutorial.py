"""Steps in the form of PyTorch's tutorial of DQN: episodes of 9 steps and more. Usage: dqn_tutorial.py DIARY."""

import random
from itertools import count

import diary
import torch
from torch.standin import Network

chance = random.Random(4)
policy_net = Network(0.015)
optimizer = torch.optim.SGD(policy_net.parameters(), lr=1e-4)


def optimize_model() -> None:
    loss = policy_net([0.5] * 8)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


diary.begin()
for _i_episode in range(1_000_000):
    duration = 9 + int(chance.expovariate(1 / 20))
    for t in count():
        optimize_model()
        done = t + 1 >= duration
        diary.stepped(t)
        if done:
            break
