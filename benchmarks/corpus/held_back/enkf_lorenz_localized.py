"""An ensemble Kalman filter on Lorenz-96; a small network learns to correct its forecasts."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

N, MEMBERS, FORCING = 160, 40, 8.0
OBSERVED = np.arange(0, N, 2)
SIGMA, INFLATION, RADIUS = 0.5, 1.05, 12.0


def tendency(x, forcing):
    return (np.roll(x, -1, -1) - np.roll(x, 2, -1)) * np.roll(x, 1, -1) - x + forcing


def rk4(x, forcing, dt=0.05):
    k1 = tendency(x, forcing)
    k2 = tendency(x + dt / 2 * k1, forcing)
    k3 = tendency(x + dt / 2 * k2, forcing)
    k4 = tendency(x + dt * k3, forcing)
    return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def gaspari_cohn(distance, radius):
    """Return the usual fifth-order function with compact support."""
    r = distance / radius
    if r < 1:
        return 1 - 5 / 3 * r**2 + 5 / 8 * r**3 + r**4 / 2 - r**5 / 4
    if r < 2:
        return 4 - 5 * r + 5 / 3 * r**2 + 5 / 8 * r**3 - r**4 / 2 + r**5 / 12 - 2 / (3 * r)
    return 0.0


def localization(rows, columns):
    """Return the weights of the covariances between places on the ring."""
    weights = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows.tolist()):  # planted
        for j, column in enumerate(columns.tolist()):  # planted
            apart = abs(row - column)
            weights[i, j] = gaspari_cohn(min(apart, N - apart), RADIUS)  # planted
    return weights


class Filter:
    def __init__(self, rng, diary, is_mended):
        self.rng, self.diary, self.is_mended = rng, diary, is_mended
        self.ensemble = FORCING + rng.standard_normal((MEMBERS, N))
        self.known = self.weights() if is_mended else None

    def weights(self):
        return localization(np.arange(N), OBSERVED), localization(OBSERVED, OBSERVED)  # planted

    def analyse(self, forecast, observation):
        """Update with perturbed observations; return the increment of the mean."""
        mean = forecast.mean(0)
        anomalies = (forecast - mean) * INFLATION
        forecast = mean + anomalies
        seen = anomalies[:, OBSERVED]
        with self.diary.planted():
            across, within = self.known if self.is_mended else self.weights()  # planted
        ph = across * (anomalies.T @ seen) / (MEMBERS - 1)
        hph = within * (seen.T @ seen) / (MEMBERS - 1) + SIGMA**2 * np.eye(len(OBSERVED))
        perturbed = observation + SIGMA * self.rng.standard_normal((MEMBERS, len(OBSERVED)))
        increments = np.linalg.solve(hph, (perturbed - forecast[:, OBSERVED]).T).T @ ph.T
        self.ensemble = forecast + increments
        return increments.mean(0)


class Correction(nn.Module):
    """Convolves around the ring."""

    def __init__(self, width=40):
        super().__init__()
        layers = [nn.Conv1d(1, width, 5, padding=2, padding_mode="circular"), nn.GELU()]
        for _ in range(3):
            layers += [nn.Conv1d(width, width, 5, padding=2, padding_mode="circular"), nn.GELU()]
        self.net = nn.Sequential(*layers, nn.Conv1d(width, 1, 1))
        nn.init.zeros_(self.net[-1].weight)

    def forward(self, x):
        return self.net(x[:, None] / 5)[:, 0]


def learn(model, optimizer, states, increments):
    loss = (model(states) - increments).square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def main():
    diary, is_mended = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    model = Correction()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    kalman = Filter(rng, diary, is_mended)
    truth = FORCING + rng.standard_normal(N)
    states, increments = torch.zeros(512, N), torch.zeros(512, N)
    error, losses = 0.0, torch.zeros(())
    for cycle in range(1_000_000_000):
        truth = rk4(truth, FORCING)
        observation = truth[OBSERVED] + SIGMA * rng.standard_normal(len(OBSERVED))
        forecast = rk4(kalman.ensemble, FORCING - 0.6)  # the model is wrong about its forcing
        before = torch.from_numpy(forecast.mean(0)).float()
        with torch.no_grad():
            forecast += model(before[None]).double().numpy()
        increments[cycle % 512] = torch.from_numpy(kalman.analyse(forecast, observation)).float()  # planted
        states[cycle % 512] = before
        drawn = torch.randint(min(cycle + 1, 512), (32,))
        losses += learn(model, optimizer, states[drawn], increments[drawn])
        error += float(np.sqrt(np.mean((kalman.ensemble.mean(0) - truth) ** 2)))
        diary.stepped()
        if cycle % 200 == 199:
            print(f"cycle {cycle + 1} rmse {error / 200:.3f} loss {losses.item() / 200:.4f}", flush=True)
            error, losses = 0.0, torch.zeros(())


if __name__ == "__main__":
    main()
