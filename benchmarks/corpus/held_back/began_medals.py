"""BEGAN on medals: the critic is an autoencoder, and a controller balances what it pays to real and to made images.

Nothing is planted: the controller's state stays in a tensor, and the schedule of the learning rate is looked at seldom.
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIZE, HIDDEN, WIDTH = 32, 64, 20
GAMMA, LAMBDA_K = 0.6, 1e-3


def make_medals(count):
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    radius, angle = torch.hypot(ys, xs), torch.atan2(ys, xs)
    points = torch.randint(3, 9, (count, 1, 1))
    star = (radius < 0.35 + 0.2 * torch.cos(points * angle + 6 * torch.rand(count, 1, 1))).float()
    rim = ((radius > 0.8) & (radius < 0.9)).float()
    metal = torch.tensor([[0.9, 0.7, 0.2], [0.8, 0.8, 0.85], [0.7, 0.4, 0.2]])[torch.randint(3, (count,))]
    relief = (0.4 + 0.6 * star).maximum(rim) * (radius < 0.9)
    return metal[:, :, None, None] * relief[:, None] * 2 - 1


def conv(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.ELU(inplace=True))


class Decoder(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.start = nn.Linear(HIDDEN, width * 64)
        self.net = nn.Sequential(
            conv(width, width),
            conv(width, width),
            nn.UpsamplingNearest2d(scale_factor=2),
            conv(width, width),
            nn.UpsamplingNearest2d(scale_factor=2),
            conv(width, width),
            nn.Conv2d(width, 3, 3, 1, 1),
        )

    def forward(self, code):
        return self.net(self.start(code).view(len(code), -1, 8, 8))


class Encoder(nn.Sequential):
    def __init__(self, width=WIDTH):
        super().__init__(
            conv(3, width),
            conv(width, 2 * width, 2),
            conv(2 * width, 2 * width),
            conv(2 * width, 3 * width, 2),
            conv(3 * width, 3 * width),
            nn.Flatten(),
            nn.Linear(3 * width * 64, HIDDEN),
        )


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, images):
        return (self.decoder(self.encoder(images)) - images).abs().mean()


class Controller:
    """Holds k, which keeps the loss of made images at gamma times that of real ones."""

    def __init__(self):
        self.k, self.measure = torch.zeros(()), torch.zeros(())

    @torch.no_grad()
    def update(self, real, made):
        balance = GAMMA * real - made
        self.k = (self.k + LAMBDA_K * balance).clamp(0, 1)
        self.measure = real + balance.abs()


class Training:
    def __init__(self, batch=16):
        self.batch, self.medals = batch, make_medals(4096)
        self.generator, self.critic, self.controller = Decoder(), Critic(), Controller()
        self.optimizers = [
            torch.optim.Adam(net.parameters(), lr=1e-4, betas=(0.5, 0.999), fused=True)
            for net in (self.critic, self.generator)
        ]
        self.schedulers = [torch.optim.lr_scheduler.ReduceLROnPlateau(one, factor=0.5) for one in self.optimizers]

    def noise(self):
        return torch.rand(self.batch, HIDDEN) * 2 - 1

    def critic_step(self, real):
        with torch.no_grad():
            made = self.generator(self.noise())
        loss_real, loss_made = self.critic(real), self.critic(made)
        self.optimizers[0].zero_grad()
        (loss_real - self.controller.k * loss_made).backward()
        self.optimizers[0].step()
        return loss_real.detach()

    def generator_step(self):
        self.critic.requires_grad_(False)
        loss = self.critic(self.generator(self.noise()))
        self.optimizers[1].zero_grad()
        loss.backward()
        self.optimizers[1].step()
        self.critic.requires_grad_(True)
        return loss.detach()

    def run(self, diary):
        step = 0
        while True:
            for rows in torch.randperm(len(self.medals)).split(self.batch):
                loss_real = self.critic_step(self.medals[rows])
                loss_made = self.generator_step()
                self.controller.update(loss_real, loss_made)
                step += 1
                if step % 300 == 0:
                    measure = self.controller.measure.item()
                    for scheduler in self.schedulers:
                        scheduler.step(measure)
                    print(f"step {step}: measure {measure:.4f} k {self.controller.k.item():.4f}", flush=True)
                diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(22)
    torch.set_num_threads(1)
    Training().run(begin()[0])
