"""Contrastive learning with a queue of keys and an encoder that follows slowly, in MoCo's style, augmented on tensors.

Nothing is planted: whole batches are augmented at once, and the averages of weights and the queue cost little.
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

SETTINGS = {"dim": 64, "K": 2048, "m": 0.99, "T": 0.1, "batch": 24, "side": 48, "lr": 0.06, "epochs": 200}


class BatchAugmentation:
    """Crops, mirrors, brightness, contrast, gray and blur for whole batches: each picture gets numbers of its own."""

    def __init__(self, side):
        self.side = side
        ramp = torch.arange(-2.0, 3.0)
        kernel = torch.exp(-(ramp**2) / 2)
        self.kernel = (kernel / kernel.sum()).view(1, 1, 1, -1)

    def crop(self, x):
        n = len(x)
        scale = torch.empty(n).uniform_(0.5, 1.0)
        shift = (1 - scale)[:, None] * torch.empty(n, 2).uniform_(-1, 1)
        mirror = torch.where(torch.rand(n) < 0.5, -1.0, 1.0)
        theta = torch.zeros(n, 2, 3)
        theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = scale * mirror, scale, shift
        grid = F.affine_grid(theta, (n, 3, self.side, self.side), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    def color(self, x):
        factors = torch.empty(2, len(x), 1, 1, 1).uniform_(0.6, 1.4)
        x = x * factors[0]
        mean = x.mean((1, 2, 3), keepdim=True)
        x = ((x - mean) * factors[1] + mean).clamp(0, 1)
        gray = x.mean(1, keepdim=True).expand_as(x)
        return torch.where(torch.rand(len(x), 1, 1, 1) < 0.2, gray, x)

    def blur(self, x):
        n, c, h, w = x.shape
        flat = x.reshape(n * c, 1, h, w)
        flat = F.conv2d(F.conv2d(flat, self.kernel, padding=(0, 2)), self.kernel.transpose(2, 3), padding=(2, 0))
        return torch.where(torch.rand(n, 1, 1, 1) < 0.5, flat.view(n, c, h, w), x)

    def __call__(self, x):
        return self.blur(self.color(self.crop(x)))


class BasicBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(c_out), nn.BatchNorm2d(c_out)
        self.shortcut = nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


def encoder(dim):
    body = [BasicBlock(3, 24, 2), BasicBlock(24, 48, 2), BasicBlock(48, 96, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, dim))


class MoCo(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.m, self.T, self.K = settings["m"], settings["T"], settings["K"]
        self.encoder_q, self.encoder_k = encoder(settings["dim"]), encoder(settings["dim"])
        self.encoder_k.load_state_dict(self.encoder_q.state_dict())
        self.encoder_k.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(settings["dim"], self.K), dim=0))
        self.pointer = 0

    @torch.no_grad()
    def _momentum_update_key_encoder(self):
        torch._foreach_lerp_(list(self.encoder_k.parameters()), list(self.encoder_q.parameters()), 1 - self.m)

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        places = torch.arange(self.pointer, self.pointer + len(keys)) % self.K
        self.queue[:, places] = keys.T
        self.pointer = (self.pointer + len(keys)) % self.K

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._momentum_update_key_encoder()
            k = F.normalize(self.encoder_k(im_k), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone()], 1) / self.T
        self._dequeue_and_enqueue(k)
        return logits, torch.zeros(len(q), dtype=torch.long)


def adjust_learning_rate(optimizer, epoch, settings):
    lr = settings["lr"] * 0.5 * (1.0 + math.cos(math.pi * min(epoch / settings["epochs"], 0.95)))
    for group in optimizer.param_groups:
        group["lr"] = lr


def train(diary, settings):
    images = F.interpolate(torch.rand(720, 3, 8, 8), size=(settings["side"] + 8,) * 2, mode="bilinear")
    augment, model = BatchAugmentation(settings["side"]), MoCo(settings)
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), settings["lr"], momentum=0.9, weight_decay=1e-4)
    epoch = 0
    while True:
        adjust_learning_rate(optimizer, epoch, settings)
        for i, rows in enumerate(torch.randperm(len(images)).split(settings["batch"])):
            im_q, im_k = augment(images[rows]), augment(images[rows])
            logits, labels = model(im_q, im_k)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 15 == 0:
                acc1 = (logits.argmax(1) == 0).float().mean().item()
                print(f"Epoch: [{epoch}][{i:3d}]\tLoss {loss.item():.4e}\tAcc@1 {100 * acc1:6.2f}", flush=True)
            diary.stepped()
        epoch += 1


if __name__ == "__main__":
    torch.manual_seed(9)
    torch.set_num_threads(1)
    train(begin()[0], SETTINGS)
