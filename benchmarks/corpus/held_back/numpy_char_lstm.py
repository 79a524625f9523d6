"""An LSTM over letters in nothing but NumPy, with the backward pass by hand, after the well-known gist for a plain RNN.

Nothing is planted: the loops over time are the network.
"""

import os
import sys
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin  # noqa: E402

HIDDEN, LENGTH, BATCH, RATE = 160, 40, 24, 2e-3
SYLLABLES = "ka ro mi ten sal du ver lin po ash qui ne tor bel".split()


def babble(rng, letters):
    """Text of made-up words; each syllable prefers some to come after it."""
    follow = rng.dirichlet(np.full(len(SYLLABLES), 0.3), size=len(SYLLABLES))
    at, text = 0, []
    while len(text) < letters // 3:
        text.append(SYLLABLES[at])
        if rng.random() < 0.35:
            text.append(rng.choice([" ", " ", " ", ", ", ". "]))
        at = rng.choice(len(SYLLABLES), p=follow[at])
    return "".join(text)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class CharLSTM:
    """Four gates from one matrix; all arrays are float32 and (batch, features)."""

    def __init__(self, letters, rng):
        def matrix(*shape):
            return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

        self.letters = letters
        self.p = {
            "wx": matrix(letters, 4 * HIDDEN),
            "wh": matrix(HIDDEN, 4 * HIDDEN),
            "b": np.zeros(4 * HIDDEN, np.float32),
            "wy": matrix(HIDDEN, letters),
            "by": np.zeros(letters, np.float32),
        }
        self.p["b"][HIDDEN : 2 * HIDDEN] = 1.0  # remember at first

    def cell(self, x, h, c):
        gates = self.p["wx"][x] + h @ self.p["wh"] + self.p["b"]
        i, f, o = (sigmoid(part) for part in np.split(gates[:, : 3 * HIDDEN], 3, axis=1))
        g = np.tanh(gates[:, 3 * HIDDEN :])
        c_next = f * c + i * g
        tanh_c = np.tanh(c_next)
        return o * tanh_c, c_next, (x, h, c, i, f, o, g, tanh_c)

    def forward(self, inputs, targets, h, c):
        loss, cache, rows = 0.0, [], np.arange(BATCH)
        for t in range(LENGTH):
            h, c, kept = self.cell(inputs[:, t], h, c)
            logits = h @ self.p["wy"] + self.p["by"]
            odds = np.exp(logits - logits.max(1, keepdims=True))
            odds /= odds.sum(1, keepdims=True)
            loss -= np.log(odds[rows, targets[:, t]] + 1e-9).mean()
            cache.append((kept, h, odds))
        return loss / LENGTH, cache, h, c

    def backward(self, targets, cache):
        d = {key: np.zeros_like(value) for key, value in self.p.items()}
        dh_next, dc_next, rows = (
            np.zeros((BATCH, HIDDEN), np.float32),
            np.zeros((BATCH, HIDDEN), np.float32),
            np.arange(BATCH),
        )
        for t in reversed(range(LENGTH)):
            (x, h_before, c_before, i, f, o, g, tanh_c), h, odds = cache[t]
            dy = odds.copy()
            dy[rows, targets[:, t]] -= 1
            dy /= BATCH * LENGTH
            d["wy"] += h.T @ dy
            d["by"] += dy.sum(0)
            dh = dy @ self.p["wy"].T + dh_next
            dc = dh * o * (1 - tanh_c**2) + dc_next
            parts = [dc * g * i * (1 - i), dc * c_before * f * (1 - f), dh * tanh_c * o * (1 - o), dc * i * (1 - g**2)]
            gates = np.concatenate(parts, axis=1)
            np.add.at(d["wx"], x, gates)
            d["wh"] += h_before.T @ gates
            d["b"] += gates.sum(0)
            dh_next, dc_next = gates @ self.p["wh"].T, dc * f
        return d

    def sample(self, rng, length):
        h, c = np.zeros((1, HIDDEN), np.float32), np.zeros((1, HIDDEN), np.float32)
        x, numbers = np.array([0]), []
        for _ in range(length):
            h, c, _ = self.cell(x, h, c)
            logits = (h @ self.p["wy"] + self.p["by"])[0]
            odds = np.exp(logits - logits.max())
            x = np.array([rng.choice(self.letters, p=odds / odds.sum())])
            numbers.append(int(x[0]))
        return numbers


class Adam:
    def __init__(self, parameters):
        self.t = 0
        self.m = {key: np.zeros_like(value) for key, value in parameters.items()}
        self.v = {key: np.zeros_like(value) for key, value in parameters.items()}

    def step(self, parameters, gradients):
        self.t += 1
        rate = RATE * np.sqrt(1 - 0.999**self.t) / (1 - 0.9**self.t)
        for key, gradient in gradients.items():
            np.clip(gradient, -1, 1, out=gradient)
            self.m[key] += 0.1 * (gradient - self.m[key])
            self.v[key] += 0.001 * (gradient**2 - self.v[key])
            parameters[key] -= rate * self.m[key] / (np.sqrt(self.v[key]) + 1e-8)


def main(diary, _):
    rng = np.random.default_rng(0)
    text = babble(rng, 120_000)
    alphabet = sorted(set(text))
    number = {letter: at for at, letter in enumerate(alphabet)}
    data = np.array([number[letter] for letter in text])
    lanes = data[: len(data) // BATCH * BATCH].reshape(BATCH, -1)
    model = CharLSTM(len(alphabet), rng)
    optimizer, smooth = Adam(model.p), np.log(len(alphabet))
    n, at = 0, lanes.shape[1]
    while True:
        if at + LENGTH + 1 >= lanes.shape[1]:
            at, h, c = 0, np.zeros((BATCH, HIDDEN), np.float32), np.zeros((BATCH, HIDDEN), np.float32)
        inputs, targets = lanes[:, at : at + LENGTH], lanes[:, at + 1 : at + LENGTH + 1]
        loss, cache, h, c = model.forward(inputs, targets, h, c)
        optimizer.step(model.p, model.backward(targets, cache))
        smooth += 0.01 * (loss - smooth)
        at, n = at + LENGTH, n + 1
        diary.stepped()
        if n % 500 == 0:
            print(
                f"iter {n}, loss {smooth:.3f}\n----\n{''.join(alphabet[x] for x in model.sample(rng, 80))}\n----",
                flush=True,
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*begin())
