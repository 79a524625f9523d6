"""Super-resolution with residual blocks and sub-pixel shuffling, in the style of the EDSR repositories.

Nothing is planted: pictures are decoded once, patches are cut from memory, and PSNR and a checkpoint are rare.
"""

import argparse
import io
import math
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

OPTIONS = argparse.Namespace(
    scale=2,
    n_resblocks=6,
    n_feats=32,
    res_scale=0.1,
    patch_size=64,
    batch_size=6,
    lr=1e-4,
    test_every=120,
    save_every=600,
)


class Timer:
    def __init__(self):
        self.begun = time.perf_counter()

    def lap(self):
        now = time.perf_counter()
        took, self.begun = now - self.begun, now
        return took


class DIVPatches(Dataset):
    """Pairs of a patch and the same in a low resolution, turned and mirrored at random."""

    def __init__(self, opt, pictures=10, size=192):
        self.opt, self.high, self.low = opt, [], []
        rng = np.random.default_rng(0)
        for _ in range(pictures):
            small = Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8))
            file = io.BytesIO()
            small.resize((size, size), Image.BICUBIC).save(file, "PNG")
            picture = Image.open(file)
            self.high.append(self._tensor(picture))
            self.low.append(self._tensor(picture.resize((size // opt.scale, size // opt.scale), Image.BICUBIC)))

    @staticmethod
    def _tensor(picture):
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float()

    def __len__(self):
        return len(self.high) * 60

    def __getitem__(self, index):
        high, low = self.high[index % len(self.high)], self.low[index % len(self.low)]
        side = self.opt.patch_size // self.opt.scale
        top, left = torch.randint(low.shape[1] - side, (2,)).tolist()
        low = low[:, top : top + side, left : left + side]
        top, left, side = (self.opt.scale * v for v in (top, left, side))
        high = high[:, top : top + side, left : left + side]
        turns, mirrored = torch.randint(4, ()).item(), torch.rand(()) < 0.5
        low, high = torch.rot90(low, turns, (1, 2)), torch.rot90(high, turns, (1, 2))
        return (low.flip(2), high.flip(2)) if mirrored else (low, high)


class ResBlock(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(opt.n_feats, opt.n_feats, 3, padding=1),
            nn.ReLU(True),
            nn.Conv2d(opt.n_feats, opt.n_feats, 3, padding=1),
        )
        self.res_scale = opt.res_scale

    def forward(self, x):
        return x + self.body(x).mul(self.res_scale)


class EDSR(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.head = nn.Conv2d(3, opt.n_feats, 3, padding=1)
        self.body = nn.Sequential(*[ResBlock(opt) for _ in range(opt.n_resblocks)])
        self.tail = nn.Sequential(
            nn.Conv2d(opt.n_feats, opt.n_feats * opt.scale**2, 3, padding=1),
            nn.PixelShuffle(opt.scale),
            nn.Conv2d(opt.n_feats, 3, 3, padding=1),
        )

    def forward(self, x):
        x = self.head((x - 127.5) / 127.5)
        return self.tail(x + self.body(x)) * 127.5 + 127.5


def psnr(sr, hr, shave):
    error = ((sr - hr)[..., shave:-shave, shave:-shave] / 255).pow(2).mean().item()
    return -10 * math.log10(error + 1e-10)


class Trainer:
    def __init__(self, opt, diary):
        self.opt, self.diary, self.model, self.data = opt, diary, EDSR(opt), DIVPatches(opt)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=opt.lr, betas=(0.9, 0.999))
        self.folder, self.iteration, self.timer = Path(tempfile.mkdtemp()), 0, Timer()

    @torch.no_grad()
    def test(self):
        self.model.eval()
        scores = [
            psnr(self.model(low[None, :, :48, :48]).clamp(0, 255), high[None, :, :96, :96], self.opt.scale)
            for low, high in zip(self.data.low[:2], self.data.high[:2], strict=True)
        ]
        print(f"[DIV x{self.opt.scale}]\tPSNR: {sum(scores) / len(scores):.3f}", flush=True)
        self.model.train()

    def train(self):
        for low, high in DataLoader(self.data, self.opt.batch_size, shuffle=True, drop_last=True):
            loss = F.l1_loss(self.model(low), high)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.iteration += 1
            if self.iteration % 50 == 0:
                print(f"[{self.iteration}]\t[L1: {loss.item():.3f}]\t{self.timer.lap():.1f}s", flush=True)
            if self.iteration % self.opt.test_every == 0:
                self.test()
            if self.iteration % self.opt.save_every == 0:
                torch.save(self.model.state_dict(), self.folder / "model_latest.pt")
            self.diary.stepped()


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    trainer = Trainer(OPTIONS, begin()[0])
    while True:
        trainer.train()
