"""Two networks against each other, as in the PyTorch examples: a grid of samples is written now and then.

Nothing is planted: the two passes of the discriminator, and the losses in a list, are what such a program needs.
"""

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn as nn
import torchvision.utils as vutils

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

opt = SimpleNamespace(batchSize=16, imageSize=32, nz=64, ngf=24, ndf=24, lr=0.0002, beta1=0.5, samples=64, every=250)


def weights_init(m):
    name = m.__class__.__name__
    if "Conv" in name:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(opt.nz, opt.ngf * 4, 4, 1, 0, bias=False),
            nn.BatchNorm2d(opt.ngf * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf * 4, opt.ngf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(opt.ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf * 2, opt.ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(opt.ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, opt.ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(opt.ndf, opt.ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(opt.ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(opt.ndf * 2, opt.ndf * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(opt.ndf * 4),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(opt.ndf * 4, 1, 4, 1, 0, bias=False),
        )

    def forward(self, x):
        return self.main(x).view(-1)


class GANTrainer:
    def __init__(self, diary):
        self.diary, self.outf = diary, Path(tempfile.mkdtemp())
        self.netG, self.netD = Generator().apply(weights_init), Discriminator().apply(weights_init)
        self.criterion = nn.BCEWithLogitsLoss()
        self.optimizerD = torch.optim.Adam(self.netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
        self.optimizerG = torch.optim.Adam(self.netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
        self.fixed_noise = torch.randn(opt.samples, opt.nz, 1, 1)
        self.images = self.shapes(1600)
        self.history = {"D": [], "G": []}

    @staticmethod
    def shapes(count):
        yy, xx = torch.meshgrid(*[torch.linspace(-1, 1, opt.imageSize)] * 2, indexing="ij")
        x, y, r = (torch.rand(3, count, 1, 1) * torch.tensor([1.0, 1.0, 0.4]).view(3, 1, 1, 1)).unbind(0)
        disks = ((xx - x + 0.5) ** 2 + (yy - y + 0.5) ** 2 < (r + 0.1) ** 2).float()
        return disks[:, None] * torch.rand(count, 3, 1, 1) * 2 - 1

    def update_discriminator(self, real, fake):
        self.netD.zero_grad()
        output = self.netD(real)
        errD_real = self.criterion(output, torch.ones_like(output))
        errD_real.backward()
        output = self.netD(fake.detach())
        errD_fake = self.criterion(output, torch.zeros_like(output))
        errD_fake.backward()
        self.optimizerD.step()
        return (errD_real + errD_fake).detach()

    def update_generator(self, fake):
        self.netG.zero_grad()
        output = self.netD(fake)
        errG = self.criterion(output, torch.ones_like(output))
        errG.backward()
        self.optimizerG.step()
        return errG.detach()

    @torch.no_grad()
    def sample(self, epoch):
        self.netG.eval()
        vutils.save_image(self.netG(self.fixed_noise), self.outf / f"fake_{epoch % 10}.png", normalize=True)
        self.netG.train()

    def train(self):
        iteration, epoch = 0, 0
        while True:
            for i, rows in enumerate(torch.randperm(len(self.images)).split(opt.batchSize)):
                fake = self.netG(torch.randn(len(rows), opt.nz, 1, 1))
                errD = self.update_discriminator(self.images[rows], fake)
                errG = self.update_generator(fake)
                if iteration % 25 == 0:
                    self.history["D"].append(errD.item())
                    self.history["G"].append(errG.item())
                    print(f"[{epoch}][{i}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}", flush=True)
                if iteration % opt.every == 0:
                    self.sample(epoch)
                iteration += 1
                self.diary.stepped()
            epoch += 1


if __name__ == "__main__":
    torch.manual_seed(999)
    torch.set_num_threads(2)
    GANTrainer(begin()[0]).train()
