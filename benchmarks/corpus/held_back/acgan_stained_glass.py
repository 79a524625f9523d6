"""An auxiliary-classifier GAN of stained glass, as in PyTorch-GAN. Nothing is planted."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

LATENT, CLASSES, SIDE, BATCH = 64, 8, 32, 16


def weights_init_normal(module):
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.normal_(module.weight, 0.0, 0.02)


class Generator(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.label_emb = nn.Embedding(CLASSES, LATENT)
        self.l1 = nn.Linear(LATENT, 2 * width * (SIDE // 4) ** 2)
        self.width = width
        self.conv_blocks = nn.Sequential(
            nn.BatchNorm2d(2 * width),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 3, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, noise, labels):
        h = self.l1(self.label_emb(labels) * noise).unflatten(1, (2 * self.width, SIDE // 4, SIDE // 4))
        return self.conv_blocks(h)


class Discriminator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layers = []
        for c1, c2, stride in ((3, width, 1), (width, width, 2), (width, 2 * width, 2), (2 * width, 4 * width, 2)):
            layers += [nn.Conv2d(c1, c2, 3, stride, 1), nn.LeakyReLU(0.2, inplace=True), nn.Dropout2d(0.15)]
        self.model = nn.Sequential(*layers, nn.Flatten())
        self.adv_layer = nn.Linear(4 * width * (SIDE // 8) ** 2, 1)
        self.aux_layer = nn.Linear(4 * width * (SIDE // 8) ** 2, CLASSES)

    def forward(self, image):
        h = self.model(image)
        return self.adv_layer(h).squeeze(1), self.aux_layer(h)


class AveragedGenerator:
    """The exponential average of the weights, one call for all of them."""

    def __init__(self, generator, decay=0.999):
        self.decay, self.source = decay, list(generator.parameters())
        self.average = [p.detach().clone() for p in self.source]

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.average, self.source, 1 - self.decay)


def make_windows(number=2400):
    """Each class of panes has its own colours and lead."""
    labels = torch.randint(CLASSES, (number,))
    palette = torch.rand(CLASSES, 4, 3) * 2 - 1
    panes = torch.randint(4, (number, 4, 4))
    colours = palette[labels[:, None, None], panes].permute(0, 3, 1, 2)
    images = F.interpolate(colours, size=SIDE, mode="nearest")
    images[:, :, ::8], images[..., ::8] = -1, -1
    return images + 0.05 * torch.randn_like(images), labels


def adversarial(validity, wanted):
    return F.binary_cross_entropy_with_logits(validity, torch.full_like(validity, wanted))


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    windows, classes = make_windows()
    generator, discriminator = Generator(), Discriminator()
    generator.apply(weights_init_normal)
    discriminator.apply(weights_init_normal)
    average = AveragedGenerator(generator)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    for epoch in range(1_000_000):
        totals = torch.zeros(3)
        batches = torch.randperm(len(windows)).split(BATCH)
        for chosen in batches:
            real, labels = windows[chosen], classes[chosen]

            # the generator's turn
            made_labels = torch.randint(CLASSES, (len(chosen),))
            made = generator(torch.randn(len(chosen), LATENT), made_labels)
            discriminator.requires_grad_(False)
            validity, predicted = discriminator(made)
            g_loss = (adversarial(validity, 1.0) + F.cross_entropy(predicted, made_labels)) / 2
            optimizer_g.zero_grad()
            g_loss.backward()
            optimizer_g.step()
            average.update()

            # the discriminator's turn
            discriminator.requires_grad_(True)
            real_validity, real_class = discriminator(real)
            fake_validity, fake_class = discriminator(made.detach())
            d_real = (adversarial(real_validity, 0.9) + F.cross_entropy(real_class, labels)) / 2
            d_fake = (adversarial(fake_validity, 0.0) + F.cross_entropy(fake_class, made_labels)) / 2
            d_loss = (d_real + d_fake) / 2
            optimizer_d.zero_grad()
            d_loss.backward()
            optimizer_d.step()

            hits = (real_class.argmax(1) == labels).float().mean()
            totals += torch.stack([d_loss.detach(), g_loss.detach(), hits])
            diary.stepped()
        d, g, accuracy = (totals / len(batches)).tolist()
        print(f"[Epoch {epoch}] [D loss: {d:.4f}, acc: {100 * accuracy:.0f}%] [G loss: {g:.4f}]", flush=True)


if __name__ == "__main__":
    main()
