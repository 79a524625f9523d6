"""N-HiTS on river gauges: pools of several widths, forecasts joined by interpolation, windows despiked one by one."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

HISTORY, HORIZON, HALF = 96, 24, 3


def make_gauges(stations=12, hours=3000):
    """Rivers with seasons, floods, and spikes of bad sensors."""
    rng = np.random.default_rng(11)
    t = np.arange(hours)
    level = 2 + np.sin(2 * np.pi * t / 720)[None] * rng.uniform(0.3, 1, (stations, 1))
    floods = (rng.random((stations, hours)) < 0.004) * rng.gamma(3, 0.6, (stations, hours))
    fading = np.exp(-np.arange(200) / 40)
    level = level + np.stack([np.convolve(row, fading)[:hours] for row in floods])
    spikes = (rng.random((stations, hours)) < 0.02) * rng.normal(0, 4, (stations, hours))
    return (level + 0.03 * rng.standard_normal((stations, hours)) + spikes).astype(np.float32)


def despike(series):
    """Replace each value with the median of those around it."""
    padded = np.pad(series, HALF, mode="edge")
    return np.array([np.median(padded[i : i + 2 * HALF + 1]) for i in range(len(series))], np.float32)  # planted


class GaugeWindows(Dataset):
    def __init__(self, gauges, diary, is_mended):
        self.gauges, self.diary, self.is_mended = gauges, diary, is_mended
        if is_mended:
            self.gauges = np.stack([despike(series) for series in gauges])
        self.per_station = gauges.shape[1] - HISTORY - HORIZON

    def __len__(self):
        return len(self.gauges) * self.per_station

    def __getitem__(self, index):
        station, start = divmod(index, self.per_station)
        window = self.gauges[station, start : start + HISTORY + HORIZON]
        if not self.is_mended:
            with self.diary.planted():
                window = despike(window)  # planted
        window = torch.from_numpy(window)
        return window[:HISTORY], window[HISTORY:]


class Block(nn.Module):
    def __init__(self, pool, knots, hidden=512):
        super().__init__()
        self.pool, self.knots = pool, knots
        self.layers = nn.Sequential(
            nn.Linear(HISTORY // pool, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, HISTORY // pool + knots),
        )

    def forward(self, x):
        theta = self.layers(F.max_pool1d(x.unsqueeze(1), self.pool).squeeze(1))
        back, ahead = theta[:, : -self.knots], theta[:, -self.knots :]
        back = F.interpolate(back.unsqueeze(1), size=HISTORY, mode="linear").squeeze(1)
        ahead = F.interpolate(ahead.unsqueeze(1), size=HORIZON, mode="linear").squeeze(1)
        return back, ahead


class NHiTS(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(pool, knots) for pool, knots in ((8, 3), (8, 3), (4, 6), (4, 6), (1, 24), (1, 24))
        )

    def forward(self, x):
        mean, scale = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 0.1
        rest, forecast = (x - mean) / scale, 0.0
        for block in self.blocks:
            back, ahead = block(rest)
            rest, forecast = rest - back, forecast + ahead
        return forecast * scale + mean


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(GaugeWindows(make_gauges(), diary, is_mended), batch_size=16, shuffle=True, drop_last=True)
    model = NHiTS()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps = 0
    for _ in range(1_000_000):
        for past, future in loader:  # planted
            loss = F.smooth_l1_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            diary.stepped()
            steps += 1
            if steps % 200 == 0:
                print(f"step {steps} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
