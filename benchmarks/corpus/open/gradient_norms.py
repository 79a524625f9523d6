"""A convolutional autoencoder whose trainer writes the norm of each gradient down, as many debugging recipes do."""

import sys
from collections import defaultdict
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


def make_model():
    layers, width = [], 3
    for wider in (16, 24, 32, 32):
        layers += [nn.Conv2d(width, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.LeakyReLU(0.2)]
        width = wider
    return nn.Sequential(*layers, nn.Conv2d(width, 3, 3, padding=1), nn.Sigmoid())


class Trainer:
    def __init__(self, model, diary, is_mended):
        self.model, self.diary, self.is_mended = model, diary, is_mended
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.history = defaultdict(list)

    def watch(self):
        for name, parameter in self.model.named_parameters():
            values = parameter.grad.flatten().sort().values  # planted
            for part in (0.05, 0.25, 0.5, 0.75, 0.95):
                self.history[name].append(torch.quantile(values, part).item())  # planted
        for values in self.history.values():
            del values[:-100]

    def fit(self, images):
        step = 0
        while True:
            for batch in images.split(4):
                loss = nn.functional.mse_loss(self.model(batch + 0.1 * torch.randn_like(batch)), batch)
                self.optimizer.zero_grad()
                loss.backward()
                if not self.is_mended:
                    with self.diary.planted():
                        self.watch()  # planted
                elif step % 100 == 0:
                    self.watch()
                self.optimizer.step()
                step += 1
                self.diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    diary, is_mended = begin()
    Trainer(make_model(), diary, is_mended).fit(torch.rand(240, 3, 24, 24))
