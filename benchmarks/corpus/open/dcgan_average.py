"""A DCGAN after pytorch/examples; the averaged generator is made anew each step by a deep copy of the whole model."""

import copy
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

nz, ngf, ndf = 64, 32, 16


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(nz, 64 * 4 * 4)
        # Memory of latent prototypes, which makes the model large and hardly any slower.
        self.prototypes = nn.Embedding(120_000, nz)
        self.main = nn.Sequential(
            nn.ConvTranspose2d(64, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise, index):
        return self.main(self.project(noise + self.prototypes(index)).view(-1, 64, 4, 4))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Flatten(),
        )

    def forward(self, image):
        return self.main(image).squeeze(1)


class Average:
    """The running mean of a model's weights."""

    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.shadow = copy.deepcopy(model)

    def update(self, model):
        fresh = copy.deepcopy(model)  # planted
        with torch.no_grad():
            for old, new in zip(self.shadow.main.parameters(), fresh.main.parameters(), strict=True):
                old.mul_(self.decay).add_(new, alpha=1 - self.decay)

    def update_in_place(self, model):
        with torch.no_grad():
            for old, new in zip(self.shadow.main.parameters(), model.main.parameters(), strict=True):
                old.mul_(self.decay).add_(new, alpha=1 - self.decay)


def main():
    diary, is_mended = begin()
    torch.manual_seed(999)
    torch.set_num_threads(1)
    netG, netD = Generator(), Discriminator()
    average = Average(netG)
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizerG = torch.optim.SGD(netG.parameters(), lr=2e-4)
    images = torch.rand(512, 3, 16, 16) * 2 - 1
    for epoch in range(1_000_000):
        for i, real in enumerate(images.split(64)):
            netD.zero_grad()
            errD_real = criterion(netD(real), torch.ones(len(real)))
            errD_real.backward()
            noise, index = torch.randn(len(real), nz), torch.randint(64, (len(real),))
            fake = netG(noise, index)
            errD_fake = criterion(netD(fake.detach()), torch.zeros(len(real)))
            errD_fake.backward()
            optimizerD.step()
            for part in (netG.project, netG.main):
                part.zero_grad()
            netG.prototypes.requires_grad_(False)
            errG = criterion(netD(fake), torch.ones(len(real)))
            errG.backward()
            optimizerG.step()
            if is_mended:
                average.update_in_place(netG)
            else:
                with diary.planted():
                    average.update(netG)  # planted
            diary.stepped()
            if i == 0 and epoch % 100 == 0:
                print(
                    f"[{epoch}] Loss_D: {errD_real.item() + errD_fake.item():.4f} Loss_G: {errG.item():.4f}", flush=True
                )


if __name__ == "__main__":
    main()
