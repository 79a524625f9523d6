"""Pictures to pictures, after pix2pix: a model object with set_input and optimize_parameters, an L1 and a GAN loss.

Nothing is planted.
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


def down(a, b):
    return nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b))


def up(a, b):
    return nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b))


class UnetGenerator(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.d1, self.d2, self.d3 = nn.Conv2d(3, c, 4, 2, 1), down(c, 2 * c), down(2 * c, 4 * c)
        self.u3, self.u2, self.u1 = up(4 * c, 2 * c), up(4 * c, c), nn.ConvTranspose2d(2 * c, 3, 4, 2, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(a)
        return torch.tanh(self.u1(torch.cat([self.u2(torch.cat([self.u3(self.d3(b)), b], 1)), a], 1)))


class GANLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.loss = nn.MSELoss()

    def __call__(self, prediction, target_is_real):
        return self.loss(prediction, torch.full_like(prediction, float(target_is_real)))


class Pix2PixModel:
    def __init__(self):
        self.netG = UnetGenerator()
        self.netD = nn.Sequential(nn.Conv2d(6, 16, 4, 2, 1), down(16, 32), nn.LeakyReLU(0.2), nn.Conv2d(32, 1, 4, 1, 1))
        self.criterionGAN, self.criterionL1 = GANLoss(), nn.L1Loss()
        self.optimizer_G = torch.optim.Adam(self.netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.optimizer_D = torch.optim.Adam(self.netD.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def set_input(self, data):
        self.real_A, self.real_B = data["A"], data["B"]

    def set_requires_grad(self, value):
        for param in self.netD.parameters():
            param.requires_grad = value

    def backward_D(self):
        fake = self.netD(torch.cat((self.real_A, self.fake_B), 1).detach())
        real = self.netD(torch.cat((self.real_A, self.real_B), 1))
        self.loss_D = (self.criterionGAN(fake, False) + self.criterionGAN(real, True)) * 0.5
        self.loss_D.backward()

    def backward_G(self):
        prediction = self.netD(torch.cat((self.real_A, self.fake_B), 1))
        self.loss_G = self.criterionGAN(prediction, True) + 100.0 * self.criterionL1(self.fake_B, self.real_B)
        self.loss_G.backward()

    def optimize_parameters(self):
        self.fake_B = self.netG(self.real_A)
        self.set_requires_grad(True)
        self.optimizer_D.zero_grad()
        self.backward_D()
        self.optimizer_D.step()
        self.set_requires_grad(False)
        self.optimizer_G.zero_grad()
        self.backward_G()
        self.optimizer_G.step()


def main(diary, _):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    dataset = [{"A": torch.rand(2, 3, 64, 64), "B": torch.rand(2, 3, 64, 64)} for _ in range(40)]
    model, total_iters = Pix2PixModel(), 0
    for epoch in range(1_000_000):
        for data in dataset:
            total_iters += 1
            model.set_input(data)
            model.optimize_parameters()
            if total_iters % 100 == 0:
                print(f"(epoch: {epoch}) G: {model.loss_G.item():.3f} D: {model.loss_D.item():.3f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main(*begin())
