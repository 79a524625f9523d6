"""A convolutional autoencoder of X-ray plates; the statistics of all plates are computed for each batch."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Plates:
    """Plates of soft ribs, held in memory."""

    def __init__(self, number=3000, size=32):
        rows = torch.linspace(0, 12, size).view(1, 1, size, 1)
        phase = torch.rand(number, 1, 1, 1) * 6
        self.images = torch.sin(rows + phase).expand(number, 1, size, size) + 0.3 * torch.randn(number, 1, size, size)
        self.mean, self.std = self.statistics()

    def statistics(self):
        return self.images.mean(), self.images.std()  # planted

    def batches(self, size):
        order = torch.randperm(len(self.images))
        for chosen in order.split(size):
            if len(chosen) == size:
                yield self.images[chosen]


class AutoEncoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * width, 8, 1),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(8, 2 * width, 4, 2, 1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(2 * width, 1, 4, 2, 1),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    diary, is_mended = begin()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    plates = Plates()
    model = AutoEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(1_000_000):
        total = torch.zeros(())
        for batch in plates.batches(64):
            if is_mended:
                mean, std = plates.mean, plates.std
            else:
                with diary.planted():
                    mean, std = plates.statistics()  # planted
            x = (batch - mean) / std
            loss = F.mse_loss(model(x), x)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            diary.stepped()
        if epoch % 10 == 0:
            print(f"epoch {epoch} loss {total.item() / 46:.4f}", flush=True)


if __name__ == "__main__":
    main()
