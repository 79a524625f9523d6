"""CycleGAN between streets by day and by night, with pools of earlier fakes as in the paper. Nothing is planted."""

import itertools
import random
import sys
from pathlib import Path

import torch
import torch.nn as nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SIZE = 40


class Options:
    lr, beta1 = 2e-4, 0.5
    lambda_A, lambda_B, lambda_identity = 10.0, 10.0, 0.5
    ngf, ndf, n_blocks = 16, 16, 3
    pool_size, batch_size = 50, 2
    n_epochs, n_epochs_decay = 100, 100
    print_freq = 100


class ImagePool:
    """Half of the time, an image of the past is shown to the discriminator in place of the new one."""

    def __init__(self, pool_size):
        self.pool_size, self.images = pool_size, []

    def query(self, images):
        shown = []
        for image in images.detach():
            if len(self.images) < self.pool_size:
                self.images.append(image.clone())
                shown.append(image)
            elif random.random() > 0.5:
                place = random.randrange(self.pool_size)
                shown.append(self.images[place])
                self.images[place] = image.clone()
            else:
                shown.append(image)
        return torch.stack(shown)


class ResnetBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        layers = [nn.ReflectionPad2d(1), nn.Conv2d(dim, dim, 3), nn.InstanceNorm2d(dim), nn.ReLU(True)]
        self.conv_block = nn.Sequential(*layers, nn.ReflectionPad2d(1), nn.Conv2d(dim, dim, 3), nn.InstanceNorm2d(dim))

    def forward(self, x):
        return x + self.conv_block(x)


def define_G(opt):
    model = [nn.ReflectionPad2d(3), nn.Conv2d(3, opt.ngf, 7), nn.InstanceNorm2d(opt.ngf), nn.ReLU(True)]
    for mult in (1, 2):
        c = opt.ngf * mult
        model += [nn.Conv2d(c, 2 * c, 3, 2, 1), nn.InstanceNorm2d(2 * c), nn.ReLU(True)]
    model += [ResnetBlock(4 * opt.ngf) for _ in range(opt.n_blocks)]
    for mult in (4, 2):
        c = opt.ngf * mult
        model += [nn.ConvTranspose2d(c, c // 2, 3, 2, 1, 1), nn.InstanceNorm2d(c // 2), nn.ReLU(True)]
    return nn.Sequential(*model, nn.ReflectionPad2d(3), nn.Conv2d(opt.ngf, 3, 7), nn.Tanh())


def define_D(opt):
    c = opt.ndf
    model = [nn.Conv2d(3, c, 4, 2, 1), nn.LeakyReLU(0.2, True)]
    model += [nn.Conv2d(c, 2 * c, 4, 2, 1), nn.InstanceNorm2d(2 * c), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*model, nn.Conv2d(2 * c, 1, 4, 1, 1))


def draw_streets(n, night):
    """Houses with windows against the sky; by night the windows are lit."""
    x = torch.arange(SIZE)
    edge = (torch.rand(n, 5).repeat_interleave(SIZE // 5, 1) * 0.6 + 0.2) * SIZE
    house = (x[None, :, None] > edge[:, None, :]).float()[:, None]
    window = ((x[:, None] % 4 < 2) & (x[None, :] % 4 < 2)).float() * house
    sky = torch.tensor([0.1, 0.1, 0.3] if night else [0.5, 0.7, 1.0]).view(1, 3, 1, 1)
    wall = torch.rand(n, 3, 1, 1) * (0.2 if night else 0.5)
    glass = torch.tensor([1.0, 0.9, 0.4] if night else [0.2, 0.3, 0.4]).view(1, 3, 1, 1)
    image = sky * (1 - house) + wall * (house - window) + glass * window
    return image.clamp(0, 1) * 2 - 1


class CycleGANModel:
    def __init__(self, opt):
        self.opt = opt
        self.netG_A, self.netG_B, self.netD_A, self.netD_B = define_G(opt), define_G(opt), define_D(opt), define_D(opt)
        self.fake_A_pool, self.fake_B_pool = ImagePool(opt.pool_size), ImagePool(opt.pool_size)
        self.gan, self.cycle = nn.MSELoss(), nn.L1Loss()
        g = itertools.chain(self.netG_A.parameters(), self.netG_B.parameters())
        d = itertools.chain(self.netD_A.parameters(), self.netD_B.parameters())
        self.optimizer_G = torch.optim.Adam(g, lr=opt.lr, betas=(opt.beta1, 0.999))
        self.optimizer_D = torch.optim.Adam(d, lr=opt.lr, betas=(opt.beta1, 0.999))
        self.schedulers = [
            torch.optim.lr_scheduler.LambdaLR(
                o, lambda e: 1.0 - max(0, e + 1 - opt.n_epochs) / (opt.n_epochs_decay + 1)
            )
            for o in (self.optimizer_G, self.optimizer_D)
        ]

    def gan_loss(self, prediction, real):
        return self.gan(prediction, torch.full_like(prediction, float(real)))

    def backward_D(self, net, real, fake):
        loss = (self.gan_loss(net(real), True) + self.gan_loss(net(fake), False)) * 0.5
        loss.backward()
        return loss.detach()

    def optimize_parameters(self, real_A, real_B):
        opt = self.opt
        fake_B, fake_A = self.netG_A(real_A), self.netG_B(real_B)
        rec_A, rec_B = self.netG_B(fake_B), self.netG_A(fake_A)
        for net in (self.netD_A, self.netD_B):
            net.requires_grad_(False)
        self.optimizer_G.zero_grad()
        loss_idt = self.cycle(self.netG_A(real_B), real_B) * opt.lambda_B * opt.lambda_identity
        loss_idt = loss_idt + self.cycle(self.netG_B(real_A), real_A) * opt.lambda_A * opt.lambda_identity
        loss_cycle = self.cycle(rec_A, real_A) * opt.lambda_A + self.cycle(rec_B, real_B) * opt.lambda_B
        loss_gan = self.gan_loss(self.netD_A(fake_B), True) + self.gan_loss(self.netD_B(fake_A), True)
        (loss_gan + loss_cycle + loss_idt).backward()
        self.optimizer_G.step()
        for net in (self.netD_A, self.netD_B):
            net.requires_grad_(True)
        self.optimizer_D.zero_grad()
        loss_A = self.backward_D(self.netD_A, real_B, self.fake_B_pool.query(fake_B))
        loss_B = self.backward_D(self.netD_B, real_A, self.fake_A_pool.query(fake_A))
        self.optimizer_D.step()
        return {"G": loss_gan.detach(), "cycle": loss_cycle.detach(), "D_A": loss_A, "D_B": loss_B}


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    opt = Options()
    days, nights = draw_streets(600, night=False), draw_streets(600, night=True)
    model = CycleGANModel(opt)
    total_iters = 0
    for epoch in itertools.count(1):
        order_A, order_B = torch.randperm(len(days)), torch.randperm(len(nights))
        for a, b in zip(order_A.split(opt.batch_size), order_B.split(opt.batch_size), strict=True):
            losses = model.optimize_parameters(days[a], nights[b])
            total_iters += 1
            if total_iters % opt.print_freq == 0:
                words = " ".join(f"{name}: {value.item():.3f}" for name, value in losses.items())
                print(f"(epoch: {epoch}, iters: {total_iters}) {words}", flush=True)
            diary.stepped()
        for scheduler in model.schedulers:
            scheduler.step()


if __name__ == "__main__":
    main()
