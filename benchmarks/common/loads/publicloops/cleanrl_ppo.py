"""Steps in the form of CleanRL, ``ppo.py``: minibatches by a stride in epochs in iterations, with rollouts between.

A pass over the minibatches takes less time than lies between two readings. Usage: cleanrl_ppo.py DIARY.
"""

import diary
import torch
from torch.standin import Network

NUM_STEPS = 64
BATCH_SIZE = 512
MINIBATCH_SIZE = 128
UPDATE_EPOCHS = 4
TARGET_KL = None


def rollout(agent: torch.nn.Module) -> None:
    with torch.no_grad():
        for _step in range(NUM_STEPS):
            agent(None)
            diary.work(0.005)


agent = Network(0.01)
optimizer = torch.optim.SGD(agent.parameters(), lr=2.5e-4)
diary.begin()
for _iteration in range(1, 1_000_001):
    rollout(agent)
    b_inds = list(range(BATCH_SIZE))
    for _epoch in range(UPDATE_EPOCHS):
        b_inds.reverse()
        for start in range(0, BATCH_SIZE, MINIBATCH_SIZE):
            end = start + MINIBATCH_SIZE
            optimizer.zero_grad()
            loss = agent(b_inds[start:end])
            loss.backward()
            optimizer.step()
            diary.stepped()
        if TARGET_KL is not None and loss.item() > TARGET_KL:
            break
