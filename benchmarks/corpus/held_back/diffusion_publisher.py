"""Denoising diffusion on small images; a thread writes the newest weights to a folder, from which a sampler reads."""

import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

STEPS, SIZE, BATCH = 200, 16, 8


class WeightPublisher:
    """Holds the newest weights, and writes them from time to time.

    A shared folder needs a moment (`settle`, in seconds) until others see the file.
    """

    def __init__(self, folder, hold_while_writing, pause=0.05, settle=0.07):
        self.folder, self.pause, self.settle = folder, pause, settle
        self.hold_while_writing = hold_while_writing
        self.lock = threading.Lock()
        self.newest = {}
        threading.Thread(target=self.run, name="publisher", daemon=True).start()

    def offer(self, model):
        weights = {name: value.detach() for name, value in model.named_parameters()}
        with self.lock:  # planted
            self.newest = weights

    def write(self, weights):
        torch.save(weights, self.folder / "weights.tmp")
        (self.folder / "weights.tmp").rename(self.folder / "weights.pt")
        time.sleep(self.settle)  # planted

    def run(self):
        while True:
            time.sleep(self.pause)
            if self.hold_while_writing:
                with self.lock:
                    self.write(self.newest)  # planted
            else:
                with self.lock:
                    weights = self.newest
                self.write(weights)


class TimeBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.shift = nn.Linear(32, width)

    def forward(self, x, time_embedding):
        y = self.norm(x) + self.shift(time_embedding)[:, :, None, None]
        return x + self.conv(nn.functional.silu(y))


class Denoiser(nn.Module):
    def __init__(self, width=48, depth=4):
        super().__init__()
        self.embed = nn.Embedding(STEPS, 32)
        self.inward, self.outward = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.blocks = nn.ModuleList(TimeBlock(width) for _ in range(depth))

    def forward(self, x, t):
        time_embedding = self.embed(t)
        x = self.inward(x)
        for block in self.blocks:
            x = block(x, time_embedding)
        return self.outward(x)


class GaussianDiffusion:
    def __init__(self):
        betas = torch.linspace(1e-4, 0.04, STEPS)
        self.alpha_bar = torch.cumprod(1 - betas, 0)

    def loss(self, model, clean):
        t = torch.randint(STEPS, (len(clean),))
        noise = torch.randn_like(clean)
        kept = self.alpha_bar[t][:, None, None, None]
        return nn.functional.mse_loss(model(kept.sqrt() * clean + (1 - kept).sqrt() * noise, t), noise)


def main():
    diary, is_mended = begin()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    images = torch.rand(400, 3, SIZE, SIZE) * 2 - 1
    model, diffusion = Denoiser(), GaussianDiffusion()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    publisher = WeightPublisher(Path(tempfile.mkdtemp()), hold_while_writing=not is_mended)
    step = 0
    while True:
        batch = images[torch.randint(len(images), (BATCH,))]
        loss = diffusion.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if is_mended:
            publisher.offer(model)
        else:
            with diary.planted():
                publisher.offer(model)  # planted
        step += 1
        diary.stepped()
        if step % 200 == 0:
            print(f"step {step}: noise mse {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
