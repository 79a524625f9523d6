"""A small net learns what a larger one says of always the same pictures; mended, its answers are kept with them."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

PICTURES, BATCH = 256, 8


def layers(width):
    return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(width * 13 * 13, 10))  # fmt: skip


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = layers(24)

    @torch.no_grad()
    def judge(self, pictures):
        return self.net(pictures).softmax(1)  # planted


def main():
    diary, is_mended = begin()
    pictures, critic, pupil = torch.rand(PICTURES, 1, 28, 28), Critic(), layers(8)
    known = critic.judge(pictures)
    optimizer = torch.optim.SGD(pupil.parameters(), lr=0.01)
    while True:
        picked = torch.randint(PICTURES, (BATCH,))
        if is_mended:
            wanted = known[picked]
        else:
            with diary.planted():
                wanted = critic.judge(pictures[picked])  # planted
        loss = nn.functional.cross_entropy(pupil(pictures[picked]), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(9)
    torch.set_num_threads(1)
    main()
