"""A GRU in NumPy alone, with backpropagation through time by hand, forecasts a tide gauge. Nothing is planted."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

HIDDEN, INPUTS, LENGTH, BATCH, AHEAD = 64, 3, 48, 64, 6


def tide_record(hours, rng):
    """Water level, air pressure and wind at a gauge, one row an hour."""
    t = np.arange(hours)
    constituents = ((12.42, 1.2), (12.0, 0.45), (25.82, 0.3), (23.93, 0.25))
    tide = sum(size * np.sin(2 * np.pi * t / period + rng.uniform(0, 6)) for period, size in constituents)
    weather = rng.standard_normal((2, hours))
    kernel = np.exp(-np.arange(60) / 15)
    pressure, wind = (np.convolve(row, kernel / kernel.sum(), "same") * 3 for row in weather)
    level = tide + 0.3 * wind - 0.25 * pressure + rng.standard_normal(hours) * 0.03
    record = np.stack([level, pressure, wind], axis=1).astype(np.float32)
    return (record - record.mean(0)) / record.std(0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def init_params(rng):
    def matrix(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    return {
        "Wx": matrix(INPUTS, 3 * HIDDEN),
        "Wh": matrix(HIDDEN, 3 * HIDDEN),
        "b": np.zeros(3 * HIDDEN, dtype=np.float32),
        "bn": np.zeros(HIDDEN, dtype=np.float32),
        "Wo": matrix(HIDDEN, AHEAD),
        "bo": np.zeros(AHEAD, dtype=np.float32),
    }


def forward(p, x):
    """Run the gates over all hours; keep what the way back needs."""
    batch, length, _ = x.shape
    h = np.zeros((batch, HIDDEN), dtype=np.float32)
    from_input = x @ p["Wx"] + p["b"]  # all hours at once
    tape = []
    for hour in range(length):
        from_hidden = h @ p["Wh"]
        gates = sigmoid(from_input[:, hour, : 2 * HIDDEN] + from_hidden[:, : 2 * HIDDEN])
        r, z = gates[:, :HIDDEN], gates[:, HIDDEN:]
        inner = from_hidden[:, 2 * HIDDEN :] + p["bn"]
        n = np.tanh(from_input[:, hour, 2 * HIDDEN :] + r * inner)
        tape.append((h, r, z, inner, n))
        h = (1 - z) * n + z * h
    return h @ p["Wo"] + p["bo"], h, tape


def backward(p, x, tape, last, d_out):
    batch, length, _ = x.shape
    grads = {name: np.zeros_like(value) for name, value in p.items()}
    grads["Wo"], grads["bo"] = last.T @ d_out, d_out.sum(0)
    dh = d_out @ p["Wo"].T
    d_input = np.empty((batch, length, 3 * HIDDEN), dtype=np.float32)
    d_hidden = np.empty((batch, 3 * HIDDEN), dtype=np.float32)
    for hour in reversed(range(length)):
        h, r, z, inner, n = tape[hour]
        dn = dh * (1 - z) * (1 - n * n)
        dz = dh * (h - n) * z * (1 - z)
        dr = dn * inner * r * (1 - r)
        d_hidden[:, :HIDDEN], d_hidden[:, HIDDEN : 2 * HIDDEN], d_hidden[:, 2 * HIDDEN :] = dr, dz, dn * r
        d_input[:, hour, :HIDDEN], d_input[:, hour, HIDDEN : 2 * HIDDEN], d_input[:, hour, 2 * HIDDEN :] = dr, dz, dn
        grads["Wh"] += h.T @ d_hidden
        grads["bn"] += d_hidden[:, 2 * HIDDEN :].sum(0)
        dh = dh * z + d_hidden @ p["Wh"].T
    flat = d_input.reshape(-1, 3 * HIDDEN)
    grads["Wx"], grads["b"] = x.reshape(-1, INPUTS).T @ flat, flat.sum(0)
    return grads


def clip(grads, most=1.0):
    norm = np.sqrt(sum(float((g * g).sum()) for g in grads.values()))
    if norm > most:
        for g in grads.values():
            g *= most / norm
    return norm


def adam(p, grads, m, v, step, rate=2e-3, b1=0.9, b2=0.999):
    correction = np.sqrt(1 - b2**step) / (1 - b1**step)
    for name, g in grads.items():
        m[name] += (1 - b1) * (g - m[name])
        v[name] += (1 - b2) * (g * g - v[name])
        p[name] -= (rate * correction * m[name] / (np.sqrt(v[name]) + 1e-8)).astype(np.float32)


def main():
    diary, _ = begin()
    rng = np.random.default_rng(42)
    record = tide_record(24 * 365 * 2, rng)
    border = int(len(record) * 0.85)
    windows = np.lib.stride_tricks.sliding_window_view(record, LENGTH + AHEAD, axis=0).transpose(0, 2, 1)
    train, held_out = windows[:border], windows[border + LENGTH :: 29]
    params = init_params(rng)
    m = {name: np.zeros_like(value) for name, value in params.items()}
    v = {name: np.zeros_like(value) for name, value in params.items()}
    step = 0
    while True:
        order = rng.permutation(len(train))
        for first in range(0, len(order) - BATCH, BATCH):
            batch = train[order[first : first + BATCH]]
            x, y = batch[:, :LENGTH], batch[:, LENGTH:, 0]
            out, last, tape = forward(params, x)
            error = out - y
            grads = backward(params, x, tape, last, error * (2 / error.size))
            clip(grads)
            step += 1
            adam(params, grads, m, v, step)
            if step % 500 == 0:
                guess, _, _ = forward(params, held_out[:, :LENGTH])
                rmse = np.sqrt(np.square(guess - held_out[:, LENGTH:, 0]).mean())
                print(f"step {step} mse {np.square(error).mean():.4f} held-out rmse {rmse:.4f}", flush=True)
            diary.stepped()


if __name__ == "__main__":
    main()
