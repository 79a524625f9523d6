"""Weather nowcasts by a ConvLSTM, in the style of benchmark repositories: fields, windows, one step ahead."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

FIELDS = ("t2m", "z500", "u10")
HOURS, SIDE, HISTORY, BATCH = 240, 32, 6, 8


def write_archive(path):
    """Write made-up fields: waves that wander over the map, with noise, in whole tenths as stations report them."""
    rng = np.random.default_rng(12)
    hours, rows, columns = np.ogrid[:HOURS, :SIDE, :SIDE]
    fields = {}
    for number, name in enumerate(FIELDS, start=1):
        waves = np.sin(0.2 * number * rows + 0.1 * hours) + np.cos(0.3 * columns - 0.05 * number * hours)
        fields[name] = np.round(waves + 0.2 * rng.normal(size=waves.shape), 1).astype(np.float32)
    np.savez_compressed(path, **fields)


class WeatherWindows(Dataset):
    """``HISTORY`` hours of every field, and the hour after them."""

    def __init__(self, path, diary, is_mended):
        self.diary, self.is_mended = diary, is_mended
        self.archive = np.load(path)
        if is_mended:
            self.archive = {name: self.archive[name] for name in FIELDS}
        stacked = np.stack([self.archive[name] for name in FIELDS])
        self.mean, self.std = stacked.mean((1, 2, 3))[:, None, None], stacked.std((1, 2, 3))[:, None, None]

    def __len__(self):
        return HOURS - HISTORY

    def window(self, start):
        return np.stack([self.archive[name][start : start + HISTORY + 1] for name in FIELDS], axis=1)  # planted

    def __getitem__(self, index):
        if self.is_mended:
            window = self.window(index)
        else:
            with self.diary.planted():
                window = self.window(index)  # planted
        window = torch.from_numpy((window - self.mean) / self.std)
        return window[:-1], window[-1]


class ConvLSTMCell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(inputs + hidden, 4 * hidden, 3, padding=1)

    def forward(self, x, state):
        hidden, cell = state
        i, f, o, g = self.gates(torch.cat([x, hidden], dim=1)).chunk(4, dim=1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell), cell


class Nowcaster(nn.Module):
    def __init__(self, hidden=20):
        super().__init__()
        self.encoder = nn.Conv2d(len(FIELDS), hidden, 4, stride=2, padding=1)
        self.cells = nn.ModuleList([ConvLSTMCell(hidden, hidden), ConvLSTMCell(hidden, hidden)])
        self.decoder = nn.Sequential(nn.Conv2d(hidden, 4 * len(FIELDS), 3, padding=1), nn.PixelShuffle(2))

    def forward(self, history):
        encoded = F.relu(self.encoder(history.flatten(0, 1))).unflatten(0, history.shape[:2])
        blank = encoded.new_zeros(len(history), self.cells[0].hidden, SIDE // 2, SIDE // 2)
        states = [(blank, blank) for _ in self.cells]
        for x in encoded.unbind(1):
            for number, cell in enumerate(self.cells):
                states[number] = cell(x, states[number])
                x = states[number][0]
        return history[:, -1] + self.decoder(x)


def forever(loader):
    while True:
        yield from loader  # planted


def main():
    diary, is_mended = begin()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fields.npz")
        write_archive(path)
        loader = DataLoader(WeatherWindows(path, diary, is_mended), batch_size=BATCH, shuffle=True, drop_last=True)
        model = Nowcaster()
        weights = torch.cos(torch.linspace(-1.4, 1.4, SIDE))[:, None]
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for step, (history, following) in enumerate(forever(loader)):  # planted
            loss = (weights * (model(history) - following).square()).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                print(f"iteration {step}: weighted mse {loss.item():.4f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
